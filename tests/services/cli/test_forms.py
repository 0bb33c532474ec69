"""`kbqa forms check`."""

import json

GOOD = {"qid": 7, "s_expression": "(AND film.film (JOIN film.film.director m.0abc))", "sparql_query": "…"}


def write(tmp_path, *records):
    file = tmp_path / "records.json"
    file.write_text(json.dumps(records))
    return str(file)


def test_good_forms_pass(in_process, tmp_path):
    code, out, _ = in_process("forms", "check", write(tmp_path, GOOD, GOOD))
    assert code == 0
    assert out.splitlines() == [
        "2 records",
        "      2 parse",
        "      2 read back unchanged",
        "      2 compile to SPARQL",
        "      2 become actions",
    ]


def test_each_failure_is_named_with_its_reason(in_process, tmp_path):
    file = write(
        tmp_path,
        GOOD,
        {"qid": 8, "s_expression": "(AND film.film"},
        {"s_expression": "(TC (JOIN a.b m.1) a.when 2009)"},
        "no record",
    )
    code, out, _ = in_process("forms", "check", file, "--json")
    assert code == 1
    report = json.loads(out)
    failures = [(failure["record"], failure["id"], failure["stage"]) for failure in report.pop("failures")]
    assert report == {"records": 4, "parsed": 2, "round_tripped": 2, "compiled": 1, "actions": 2}
    assert failures == [(2, "8", "parsed"), (3, "", "compiled"), (4, "", "parsed")]
    text = in_process("forms", "check", file)[1]
    assert "record 2 (qid 8) does not parse: at character 15: the expression ends too early" in text
    assert "record 3 does not compile to SPARQL: TC's relation a.when begins or ends no interval" in text


def test_a_form_without_actions_is_listed_but_does_not_fail(in_process, tmp_path):
    code, out, _ = in_process("forms", "check", write(tmp_path, {"s_expression": "(COUNT film.film)"}))
    assert code == 0
    assert "record 1 does not become actions: no action applies COUNT to a bare class" in out


def test_files_that_hold_no_records_are_errors(in_process, tmp_path):
    code, _, err = in_process("forms", "check", str(tmp_path / "missing.json"))
    assert (code, "missing.json: No such file" in err) == (2, True)
    for content, reason in (
        (b'{"qid": ', "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"{}", "not a list of records"),
    ):
        file = tmp_path / "bad.json"
        file.write_bytes(content)
        code, _, err = in_process("forms", "check", str(file))
        assert (code, err.startswith("error: "), reason in err) == (2, True, True)
