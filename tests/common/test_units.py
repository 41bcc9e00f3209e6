"""Parsers and formatters of sizes and times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import MAX_BYTES
from hpccoll.common.units import (
    format_bit_rate,
    format_cpu_list,
    format_decimal_bytes,
    format_number,
    format_rate,
    format_seconds,
    format_size,
    parameter_values,
    parse_cpu_list,
    parse_rate,
    parse_seconds,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("8", 8), (8, 8), ("0", 0), ("1K", 1024), ("64k", 65536), ("4 MiB", 4 << 20), ("1GB", 1 << 30), (" 2T ", 2 << 40)],
)
def test_prefixes_of_sizes_are_powers_of_1024(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "K", "-8", "1.5M", "8X", "8 KK", "1e3", "True", "8 8"])
def test_an_invalid_size_is_refused_with_key_and_value(text):
    with pytest.raises(BadInputError, match=r"-b: .* is not valid: a number of bytes such as") as error:
        parse_size(text, "-b")
    assert (error.value.key, error.value.value) == ("-b", text)


@given(st.integers(0, MAX_BYTES))
def test_a_formatted_size_is_exact(nbytes):
    assert parse_size(format_size(nbytes)) == nbytes


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (8, "8 B"), (1000, "1000 B"), (1024, "1 KiB"), (3 << 20, "3 MiB"), (1 << 50, "1024 TiB")],
)
def test_a_formatted_size_has_the_largest_prefix_that_divides_it(nbytes, text):
    assert format_size(nbytes) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.000"),
        (12.5, "12.500"),
        (1, "1.000"),
        (0.25, "0.250"),
        (0.0163841, "0.0164"),
        (2.5e-7, "0.000000250"),
        (float("inf"), "inf"),
    ],
)
def test_a_number_has_its_decimals_and_at_least_three_digits(value, text):
    assert format_number(value, 3) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ns"),
        (5.61e-6, "5.61 us"),
        (12.84e-3, "12.8 ms"),
        (1.0, "1 s"),
        (59.96, "60 s"),
        (3e-9, "3 ns"),
        (999.4e-6, "999 us"),
        (999.9e-6, "1 ms"),
        (0.99999, "1 s"),
    ],
)
def test_a_duration_has_three_digits_and_a_fitting_unit(seconds, text):
    assert format_seconds(seconds) == text


@given(st.floats(1e-9, 999.0))
def test_a_duration_has_no_exponent(seconds):
    number, _unit = format_seconds(seconds).split()
    assert "e" not in number
    assert float(number) < 1000


@pytest.mark.parametrize(
    ("text", "seconds"), [("3.5ms", 3.5e-3), ("2 s", 2.0), ("0.5", 0.5), ("1e2us", 1e-4), ("10NS", 1e-8)]
)
def test_durations_have_units(text, seconds):
    assert parse_seconds(text, "--compute") == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "rate"), [("400gbit", 4e11), ("100 Mbit/s", 1e8), ("1.6Tbit", 1.6e12), ("8e9bit", 8e9), ("64kbit", 64e3)]
)
def test_rates_have_units(text, rate):
    assert parse_rate(text, "--rate") == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "ms", "0s", "-1ms", "1.2.3s", "1min", "inf", "1e999s", "400gbit"])
def test_what_is_no_duration_is_bad_input(text):
    with pytest.raises(BadInputError, match="--compute"):
        parse_seconds(text, "--compute")


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (4e11, "400 Gbit/s"),
        (5.6e13, "56,000 Gbit/s"),
        (1e8, "100 Mbit/s"),
        (2.5e9, "2.5 Gbit/s"),
        (9600, "9.6e+03 bit/s"),
    ],
)
def test_rates_are_printed_with_decimal_prefixes(rate, text):
    assert format_bit_rate(rate) == text


@pytest.mark.parametrize(("nbytes", "text"), [(14e9, "14 GB"), (8.2e6, "8.2 MB"), (12, "12 B"), (1.6e12, "1.6 TB")])
def test_bytes_are_printed_with_decimal_prefixes(nbytes, text):
    assert format_decimal_bytes(nbytes) == text


def test_a_value_that_is_given_twice_is_one_choice():
    assert parameter_values(["channels=1,01,1,4", "outer=ring,ring"]) == {"channels": [1, 4], "outer": ["ring"]}


@given(st.frozensets(st.integers(0, 300)))
def test_a_list_of_cpus_is_read_as_it_was_written(cpus):
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus


def test_cpus_are_written_as_ranges():
    assert format_cpu_list([9, 8, 1, 4, 5]) == "1,4-5,8-9"


def test_a_rate_has_three_digits_and_its_unit():
    assert [format_rate(rate) for rate in (12_400_000, 3.2e9, 0)] == ["12.4 MB/s", "3.2 GB/s", "0 MB/s"]
