"""Parsers and formatters of sizes and times: sizes are binary (64M is 64 MiB); GB is 1e9 bytes."""

import re
from collections.abc import Collection, Iterable, Mapping
from math import floor, isfinite, log10

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import MAX_BYTES

_SIZE = re.compile(r"(?P<number>[0-9]{1,19})\s*(?P<prefix>[kKmMgGtT]?)(?:i?[bB])?")
_PREFIXES = ("", "K", "M", "G", "T")


def parse_size(text: str | int, key: str = "bytes") -> int:
    """Parse a size in bytes: ``8``, ``64K``, ``4 MiB``; prefixes are powers of 1024.

    Raises:
        BadInputError: if ``text`` is not a size.
    """
    if isinstance(text, int) and (isinstance(text, bool) or not 0 <= text <= MAX_BYTES):
        match = None
    else:
        match = _SIZE.fullmatch(str(text).strip())
    if match:
        power = _PREFIXES.index(match["prefix"].upper())
        nbytes: int = int(match["number"]) * 1024**power
        if nbytes <= MAX_BYTES:
            return nbytes
    expected = f"a number of bytes such as 8, 64K, 4M or 1G (powers of 1024), at most {format_size(MAX_BYTES)}"
    raise BadInputError(key, text, expected)


def sizes_between(begin: str, end: str, factor: int) -> list[int]:
    """Return the sizes from the option -b to the option -e, each ``factor`` times the one before.

    Raises:
        BadInputError: if one is not a size, the first is nothing, or larger than the last.
    """
    first, last = parse_size(begin, "-b"), parse_size(end, "-e")
    if first < 1:
        raise BadInputError("-b", begin, "at least one byte")
    if first > last:
        raise BadInputError("-e", end, f"at least the first size, -b {format_size(first)}")
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return sizes


_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_BITS_PER_SECOND = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}


MIN_QUANTITY, MAX_QUANTITY = 1e-15, 1e21
"""The bounds of durations in seconds and rates in bits a second: products and ratios of them are finite."""


def parse_seconds(text: str, key: str) -> float:
    """Parse a duration: ``3.5ms``, ``2 s``; a number without a unit is in seconds.

    Raises:
        BadInputError: if ``text`` is not a duration from MIN_QUANTITY to MAX_QUANTITY.
    """
    units = {**_SECONDS, "": 1.0}
    bounds = f"from {MIN_QUANTITY:g} to {MAX_QUANTITY:g} s"
    return _parse_quantity(
        text, units, key, f"a duration {bounds}, such as 3.5ms, with us, ms or s"
    )


def parse_rate(text: str, key: str) -> float:
    """Parse a rate in bits a second: ``400gbit``, ``100 Mbit``.

    Raises:
        BadInputError: if ``text`` is not a rate with a unit (400 alone could be meant in any), or
            beyond the bounds.
    """
    return _parse_quantity(
        text, _BITS_PER_SECOND, key, "a rate such as 400gbit, with mbit, gbit or tbit"
    )


MAX_FACTOR = 1000.0


def parse_factor(text: str, key: str) -> float:
    """Parse a factor: ``x2``, ``x0.5``; BadInputError if ``text`` is none."""
    match = re.fullmatch(r"\s*x\s*([0-9]{0,9}\.?[0-9]{1,9})\s*", text)
    if not match:
        raise BadInputError(key, text, "a factor, of the rates of the network, such as x2")
    return float(match[1])


def _parse_quantity(text: str, units: Mapping[str, float], key: str, expected: str) -> float:
    match = re.fullmatch(r"\s*([0-9.]+(?:e[-+]?[0-9]+)?)\s*([a-z]*)(?:/s)?\s*", text.lower())
    factor = units.get(match[2]) if match else None
    try:
        value = float(match[1]) * factor if match and factor else 0.0
    except ValueError:
        value = 0.0
    if not MIN_QUANTITY <= value <= MAX_QUANTITY:
        raise BadInputError(key, text, expected)
    return value


def parse_parameter(text: str, key: str = "--param") -> tuple[str, int | str]:
    """Parse the name and the value of ``channels=4`` or ``outer=ring``; digits are a whole number.

    Raises:
        BadInputError: if ``text`` is not a name and a value.
    """
    name, equals, value = text.partition("=")
    if not (name and equals) or re.fullmatch(r"-?[0-9]{19,}", value):
        raise BadInputError(
            key, text, "a name and a value, such as channels=4, a number of at most 18 digits"
        )
    if re.fullmatch(r"-?[0-9]+", value):
        return name, int(value)
    return name, value


def parameter_values(texts: Iterable[str]) -> dict[str, list[int | str]]:
    """Return the values of ``channels=1,4`` and others by their names, each value once.

    Raises:
        BadInputError: if one of ``texts`` is not a name and values.
    """
    choices: dict[str, list[int | str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        parsed = (parse_parameter(f"{name}{equals}{value}")[1] for value in values.split(","))
        choices[name] = list(dict.fromkeys(parsed))
    return choices


def format_size(nbytes: int) -> str:
    """Format a size exactly, with the largest prefix that divides it: ``8 B``, ``64 KiB``, ``4 MiB``, ``1000 B``."""
    power = 0
    while nbytes and nbytes % 1024 == 0 and power < len(_PREFIXES) - 1:
        nbytes //= 1024
        power += 1
    return f"{nbytes} {_PREFIXES[power]}{'iB' if power else 'B'}"


def format_rounded_size(nbytes: float) -> str:
    """Format a size with about three digits: ``1.88 MiB``, ``594 KiB``; exactly if that is as short."""
    exact = format_size(round(nbytes))
    if nbytes < 1024 or (exact.endswith("iB") and len(exact) <= 7):  # as 999 KiB
        return exact
    power = 1
    while nbytes >= 999.5 * 1024**power and power < len(_PREFIXES) - 1:
        power += 1
    return f"{nbytes / 1024**power:.3g} {_PREFIXES[power]}iB"


def format_number(value: float, decimals: int) -> str:
    """Format a number with ``decimals`` decimals, or with more if its first three digits need them."""
    if value and isfinite(value):
        first = floor(log10(abs(value)))
        if first < 0:
            decimals = max(decimals, 2 - first)
    return f"{value:.{max(decimals, 0)}f}"


def format_wait(seconds: float) -> str:
    """Format a duration for planning, rounded: ``90 s``, ``43 min``, ``5.2 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def format_seconds(seconds: float) -> str:
    """Format a duration or a difference with three significant digits: ``5.61 us``, ``-12.8 ms``."""
    if seconds < 0:
        return f"-{format_seconds(-seconds)}"
    scale, unit = seconds_unit(seconds)
    return f"{seconds / scale:.3g} {unit}"


def seconds_unit(seconds: float) -> tuple[float, str]:
    """Return scale and name of the unit of a duration."""
    return _largest_unit(seconds, (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def _largest_unit(value: float, *units: tuple[float, str]) -> tuple[float, str]:
    """Return the largest unit in which a value is 1 or more when rounded; else the last of the units."""
    return next((unit for unit in units if value >= 0.9995 * unit[0]), units[-1])


def format_interval(ends: tuple[float, float]) -> str:
    """Return the ends of an interval of durations: ``5.61 us to 12.8 ms``."""
    return " to ".join(map(format_seconds, ends))


def format_bit_rate(rate: float) -> str:
    """Format a rate in bits a second with a decimal prefix: ``400 Gbit/s``, ``56,000 Gbit/s``."""
    scale, unit = _largest_unit(rate, (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1.0, "bit/s"))
    if rate >= 1e12:
        return f"{rate / scale:,.0f} {unit}"
    return f"{rate / scale:.3g} {unit}"


def rate_unit(largest: float) -> tuple[float, str]:
    """Return scale and name of the unit for rates up to ``largest`` bytes per second."""
    return (1e9, "GB/s") if largest >= 1e9 else (1e6, "MB/s")


def format_rate(rate: float) -> str:
    """Return bytes per second with three significant digits: ``3.2 GB/s``, ``12.4 MB/s``."""
    scale, unit = rate_unit(rate)
    return f"{rate / scale:.3g} {unit}"


def format_decimal_bytes(nbytes: float) -> str:
    """Format bytes with three significant digits and a decimal prefix: ``14 GB``, ``8.2 MB``."""
    scale, unit = _largest_unit(
        nbytes, (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")
    )
    if scale > 1:
        return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes:.0f} B"


def format_count(count: object, noun: str) -> str:
    """Return a count with its noun: ``1 rank``, ``2 ranks``, ``2 batches``."""
    if count == 1:
        return f"{count} {noun}"
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count} {plural}"


def format_counts(counts: Collection[object], noun: str) -> str:
    """Return several counts with their noun: ``1 rank``, ``2, 4 ranks``."""
    if len(counts) > 1:
        return format_count(", ".join(map(str, counts)), noun)
    return format_count(next(iter(counts)), noun)


def format_factor(factor: float) -> str:
    """Format a time over another one: ``1.25x``, ``0.80x``, ``8,425x``, ``0.0004x``."""
    if factor >= 9.995:
        return f"{factor:,.0f}x"
    return f"{factor:.2f}x" if factor >= 0.0995 else f"{factor:.1g}x"


def parse_cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list as Linux writes it, such as ``0-11,24``.

    Raises:
        ValueError: if the text is no such list.
    """
    ranges = (part.partition("-") for part in text.split(",") if part)
    return frozenset(
        cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)
    )


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return CPU numbers as ranges, such as ``0-3,8``."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def format_per_cent(share: float) -> str:
    """Return a share in per cent, with a decimal below 10 %."""
    if abs(share) >= 0.0995:
        return f"{100 * share:.0f} %"
    return f"{100 * share:.1f} %"
