"""Parsers and formatters of sizes and times."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common import units
from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import MAX_BYTES

FORMATTED = {
    units.format_size: {0: "0 B", 8: "8 B", 1000: "1000 B", 1024: "1 KiB", 3 << 20: "3 MiB", 1 << 50: "1024 TiB"},
    units.format_seconds: {
        0: "0 ns", 3e-9: "3 ns", 5.61e-6: "5.61 us", 999.4e-6: "999 us", 999.9e-6: "1 ms", 12.84e-3: "12.8 ms",
        0.99999: "1 s", 1.0: "1 s", 59.96: "60 s",
    },
    units.format_bit_rate: {
        4e11: "400 Gbit/s", 5.6e13: "56,000 Gbit/s", 1e8: "100 Mbit/s", 2.5e9: "2.5 Gbit/s", 9600: "9.6e+03 bit/s",
    },
    units.format_decimal_bytes: {14e9: "14 GB", 8.2e6: "8.2 MB", 12: "12 B", 1.6e12: "1.6 TB"},
    units.format_rate: {12_400_000: "12.4 MB/s", 3.2e9: "3.2 GB/s", 0: "0 MB/s"},
    units.format_cpu_list: {(9, 8, 1, 4, 5): "1,4-5,8-9"},
    partial(units.format_number, decimals=3): {
        0: "0.000", 12.5: "12.500", 1: "1.000", 0.25: "0.250", 0.0163841: "0.0164", 2.5e-7: "0.000000250",
        float("inf"): "inf",
    },
}  # fmt: skip
PARSED = {
    units.parse_size: {8: 8, "0": 0, "1K": 1 << 10, "64k": 1 << 16, "4 MiB": 1 << 22, "1GB": 1 << 30, " 2T ": 1 << 41},
    partial(units.parse_seconds, key="-s"): {"3.5ms": 3.5e-3, "2 s": 2.0, "0.5": 0.5, "1e2us": 1e-4, "10NS": 1e-8},
    partial(units.parse_rate, key="-r"): {
        "400gbit": 4e11, "100 Mbit/s": 1e8, "1.6Tbit": 1.6e12, "8e9bit": 8e9, "64kbit": 64e3,
    },
    partial(units.parse_factor, key="--rate"): {"x2": 2, " x 0.5 ": 0.5, "x.25": 0.25, "x10": 10},
}  # fmt: skip


@pytest.mark.parametrize("function", FORMATTED)
def test_a_quantity_has_three_digits_or_is_exact_and_a_unit_that_fits(function):
    assert {value: function(value) for value in FORMATTED[function]} == FORMATTED[function]


@pytest.mark.parametrize("function", PARSED)
def test_a_text_is_read_with_its_unit(function):
    assert {text: function(text) for text in PARSED[function]} == pytest.approx(PARSED[function])


@pytest.mark.parametrize("text", ["", "K", "-8", "1.5M", "8X", "True"])
def test_an_invalid_size_is_refused_with_key_and_value(text):
    with pytest.raises(
        BadInputError, match=r"-b: .* is not valid: a number of bytes such as"
    ) as error:
        units.parse_size(text, "-b")
    assert (error.value.key, error.value.value) == ("-b", text)


@pytest.mark.parametrize("text", ["ms", "0s", "1.2.3s", "1min", "1e999s", "400gbit"])
def test_what_is_no_duration_is_bad_input(text):
    with pytest.raises(BadInputError, match="--compute"):
        units.parse_seconds(text, "--compute")


@given(st.integers(0, MAX_BYTES))
def test_a_formatted_size_is_exact(nbytes):
    assert units.parse_size(units.format_size(nbytes)) == nbytes


@given(st.frozensets(st.integers(0, 300)))
def test_a_list_of_cpus_is_read_as_it_was_written(cpus):
    assert units.parse_cpu_list(units.format_cpu_list(cpus)) == cpus


def test_a_value_that_is_given_twice_is_one_choice():
    assert units.parameter_values(["channels=1,01,1,4", "outer=ring,ring"]) == {
        "channels": [1, 4],
        "outer": ["ring"],
    }
