"""What a request says of its sender."""

from __future__ import annotations

import pytest

from services.access.credentials import address_of


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("10.0.0.1", 5000), "10.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1), "fe80::/64"),
        ((":not:an:address", 1), ":not:an:address"),
        (None, "unknown"),
    ],
)
def test_a_host_has_one_address_for_the_limits(client, address):
    assert address_of(client) == address
