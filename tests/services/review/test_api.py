"""What the page of reviews asks of its service, by HTTP."""

from __future__ import annotations

import httpx
import pytest

from kbqa.datasets.records import write_questions
from kbqa.datasets.reviews import Review
from tests.services.review.conftest import MARKUP, QUESTIONS


def shown(url):
    response = httpx.get(f"{url}/v1/review")
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    return {question["id"]: question for question in response.json()["questions"]}


def decide(url, question, verdict, **fields):
    body = {"id": question["id"], "digest": question["digest"], "verdict": verdict, **fields}
    return httpx.post(f"{url}/v1/decisions", json=body)


def test_a_sample_has_labels_and_programs_and_decisions_are_saved_at_once(serve, file):
    with serve() as url:
        questions = shown(url)
        assert questions.keys() == {question.id for question in QUESTIONS}
        first = questions["films/1"]
        assert (first["answers"], first["topics"]) == (["Ada Smith", MARKUP], ["Tale One"])
        assert first["path"] == [
            {"relation": "part_of", "inverse": True},
            {"relation": "directed_by", "inverse": False},
        ]
        assert (first["verdict"], first["wording"]) == ("open", None)
        response = decide(url, first, "accepted", wording="Whose films are of Tale 1?")
        assert response.json()["progress"]["reworded"] == 1
        assert decide(url, questions["films/2"], "rejected").json()["progress"]["rejected"] == 1
        assert [question.id for question in Review(file).kept()] == ["films/1", "films/3", "films/4"]
        first = shown(url)["films/1"]
        assert (first["verdict"], first["wording"]) == ("accepted", "Whose films are of Tale 1?")
        decide(url, first, "open")
    with serve() as url:  # again
        verdicts = {id_: question["verdict"] for id_, question in shown(url).items()}
    assert verdicts == {"films/1": "open", "films/2": "rejected", "films/3": "open", "films/4": "open"}


def test_a_sample_may_be_smaller(serve):
    with serve(sample=2) as url:
        assert len(shown(url)) == 2


def test_a_question_that_was_removed_meanwhile_is_told(serve, file):
    with serve() as url:
        questions = shown(url)
        write_questions(file, QUESTIONS[1:])
        response = decide(url, questions["films/1"], "accepted")
        assert response.status_code == 409
        assert "load the page again" in response.json()["detail"]
        assert "films/1" not in shown(url)
        file.unlink()
        response = decide(url, questions["films/2"], "accepted")
        assert (response.status_code, "cannot be read" in response.json()["detail"]) == (409, True)


@pytest.mark.parametrize(
    "fields",
    [{"verdict": "maybe"}, {"wording": "a" * 5000}, {"wording": " "}, {"wording": QUESTIONS[2].text}],
)
def test_what_is_no_decision_is_refused_and_not_saved(fields, serve, file):
    with serve() as url:
        question = shown(url)["films/1"]
        assert decide(url, question, **{"verdict": "accepted"} | fields).status_code == 422
    assert not Review(file).decisions_path.exists()


def test_pages_of_other_sites_change_and_read_nothing(serve, file):
    with serve() as url:
        question = shown(url)["films/1"]
        body = {"id": question["id"], "digest": question["digest"], "verdict": "rejected"}
        foreign = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
        assert httpx.post(f"{url}/v1/decisions", json=body, headers=foreign).status_code == 403
        assert httpx.get(f"{url}/v1/review", headers={"Host": "evil.example"}).status_code in (403, 421)
    assert not Review(file).decisions_path.exists()


def test_the_page_allows_nothing_from_elsewhere(serve):
    with serve() as url:
        page = httpx.get(url)
        assert "default-src 'none'; script-src 'self'" in page.headers["Content-Security-Policy"]
        for name in ("review.js", "review.css", "base.css", "dom.js", "theme.js"):
            text = httpx.get(f"{url}/static/{name}").raise_for_status().text
            assert "https://" not in text
        assert "http" not in page.text
