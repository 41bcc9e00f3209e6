"""What a chart shows, as lines of text."""

SHOWN = (
    "series",
    "at",
    "size",
    "line",
    "machine",
    "repeat",
    "value",
    "low",
    "high",
    "fill",
    "lead",
    "second",
    "clear",
    "limit",
    "limit_name",
    "expected",
    "bucket",
    "part",
    "rank",
    "begin",
    "end",
    "top",
    "bottom",
    "label",
)


def values(specification):
    """Return the records of a chart."""
    (dataset,) = specification["datasets"].values()
    return dataset


def layers(chart):
    return chart.get("spec", chart)["layer"]


def outline(chart):
    """Yield the lines of what a chart shows: headings, panels, axes, series with their colours and marks, and data."""
    yield f"# {chart['title']['text']}"
    yield from (f"  {line}" for line in chart["title"]["subtitle"])
    if "facet" in chart:
        yield f"panels, {chart['columns']} in a row: {'; '.join(chart['facet']['sort'])}"
    channels = [layer["encoding"] for layer in layers(chart)]
    for axis in "xy":
        titles = {str(each[axis]["title"]) for each in channels if "title" in each.get(axis, {})}
        yield f"{axis}: {', '.join(sorted(titles))}"
    for name in ("color", "shape"):
        scales = {
            str(each[name].get("scale")): each[name].get("scale")
            for each in channels
            if name in each
        }
        for scale in filter(None, scales.values()):
            pairs = (
                zip(scale["domain"], scale["range"], strict=True)
                if len(scale["range"]) == len(scale["domain"])
                else ()
            )
            yield f"{name}: " + ", ".join(f"{series} {value}" for series, value in pairs)
    yield "marks: " + ", ".join(layer["mark"]["type"] for layer in layers(chart))
    yield f"{len(values(chart))} records"


def point_lines(chart):
    """Yield the axes and panels of a chart, and its points by panel."""
    yield from (line for line in outline(chart) if line.startswith(("panels", "x:", "y:", "marks")))
    for d in values(chart):
        shown = {name: d[name] for name in SHOWN if name in d}
        texts = (
            f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in shown.items()
        )
        yield f"  {d.get('panel') or 'one panel'}: {', '.join(texts)}"
