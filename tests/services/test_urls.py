import pytest

from services.urls import split_url, without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("rediss://:s3cret@host:6379/0", "rediss://:***@host:6379/0"),
        ("amqp://ann:s3cret@host/one", "amqp://ann:***@host/one"),
        (
            "redis+sentinel://ann:s3cret@a:1,b:2/main?db=1&sentinel_password=s3cret&ssl_password=s3cret",
            "redis+sentinel://ann:***@a:1,b:2/main?db=1&sentinel_password=***&ssl_password=***",
        ),
        ("redis+sentinel://ann:s3cret@a:1,[::1]:2/main", "redis+sentinel://ann:***@a:1,[::1]:2/main"),
    ],
)
def test_a_url_is_shown_without_its_passwords(url, shown):
    assert without_password(url) == shown


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        (
            "redis+sentinel://a,[::1]:5000/films?db=3",
            ("redis+sentinel", "a,[::1]:5000", "/films", "db=3", ""),
        ),
        ("redis://[::1]:6379/0", ("redis", "[::1]:6379", "/0", "", "")),
        ("memory://", ("memory", "", "", "", "")),
        ("host:6379", ("host", "", "6379", "", "")),
        ("", ("", "", "", "", "")),
    ],
)
def test_a_url_may_name_several_hosts(url, parts):
    assert split_url(url) == parts
