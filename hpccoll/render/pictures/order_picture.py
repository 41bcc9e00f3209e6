"""The picture of an order: the buffer, coloured by tree, and each tree with the ranks as its leaves."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from hpccoll.analysis.order_record import ElementTree, OrderRecord
from hpccoll.common.errors import BadInputError, writing
from hpccoll.render.colours import INK, MUTED, PALETTE, PAPER
from hpccoll.render.order_text import bound_sentence, count_sentence, order_title
from hpccoll.render.pictures import svg
from hpccoll.render.pictures.picture import ENDINGS
from hpccoll.render.pictures.svg import Box, Dot, LineStyle, Point, SvgShape, Text, straight
from hpccoll.schedule.summation_tree import SummationTree
from hpccoll.store.durable_files import replacing_file

MOST_DRAWN, MOST_LEAVES = 8, 64
"""How many trees are drawn, and of how many ranks at most."""

WIDTH, TALL = 640.0, 26.0
"""The width and the height of the buffer, in pixels."""

LEVEL, ACROSS = 30.0, 26.0
"""The height of a level of a tree, and the distance between two leaves, in pixels."""


def order_picture(record: OrderRecord) -> str:
    """Return the picture of an order as an SVG file."""
    drawn = [tree for tree in record.trees if _can_be_drawn(tree)][:MOST_DRAWN]
    panels = [("which elements have which order", list(_buffer(record)))]
    for number, tree in enumerate(drawn):
        if tree.tree is not None:
            panels.append((f"order {number + 1}", list(tree_shapes(tree.tree, _colour(number)))))
    shapes = svg.stacked([_titled(title, shapes) for title, shapes in panels], top=0.0)
    title = order_title(record)
    lines = [count_sentence(record), bound_sentence(record)]
    heading: list[SvgShape] = [Text(Point(0, -74), title, size=16, anchor="start", weight=700)]
    for number, line in enumerate(lines):
        at = Point(0, -52 + 18 * number)
        heading.append(Text(at, line, anchor="start", colour=MUTED))
    return svg.svg_document([*heading, *shapes], title, "; ".join(lines))


def _can_be_drawn(tree: ElementTree) -> bool:
    return tree.tree is not None and len(tree.tree.ranks) <= MOST_LEAVES


def _titled(title: str, shapes: Sequence[SvgShape]) -> list[SvgShape]:
    bounds = svg.bounds_of(shapes)
    at = Point(bounds.left, bounds.top - 14)
    return [Text(at, title, anchor="start", weight=700), *shapes]


def _colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


def _buffer(record: OrderRecord) -> Iterator[SvgShape]:
    """Yield the buffer as a bar in which each range has the colour of its tree."""
    last = max(stop for tree in record.trees for _, stop in tree.ranges)
    for number, tree in enumerate(record.trees):
        for start, stop in tree.ranges:
            low = Point(WIDTH * start / last, 0)
            high = Point(WIDTH * stop / last, TALL)
            yield Box(low, high, _colour(number), radius=0)
    yield Text(Point(0, TALL + 12), "0", size=11, anchor="start", colour=MUTED)
    yield Text(Point(WIDTH, TALL + 12), f"{last:,} elements", size=11, anchor="end", colour=MUTED)


def tree_shapes(tree: SummationTree, colour: str = INK) -> Iterator[SvgShape]:
    """Yield a tree: ranks below, and each sum above what it adds."""
    places: dict[SummationTree, Point] = {}
    leaves = 0
    line = LineStyle(colour)
    dots: list[SvgShape] = []
    for current in _in_drawing_order(tree):
        if current.rank is not None:
            at = Point(leaves * ACROSS, 0)
            leaves += 1
            dots.append(Text(at.moved(0, 14), str(current.rank), size=11))
        else:
            across = [places[child].x for child in current.children]
            at = Point(sum(across) / len(across), -current.depth * LEVEL)
            for child in current.children:
                yield straight(places[child], at, line, head=False)
        places[current] = at
        dots.append(Dot(at, 4.0, colour if current.rank is None else PAPER))
    yield from dots


def _in_drawing_order(tree: SummationTree) -> Iterator[SummationTree]:
    """Yield a tree from left to right, children before the sums, the deeper child first: chains lean to one side."""
    pending: list[tuple[SummationTree, bool]] = [(tree, False)]
    while pending:
        current, opened = pending.pop()
        if opened or current.rank is not None:
            yield current
            continue
        pending.append((current, True))
        by_depth = sorted(current.children, key=lambda child: (child.depth, -child.least))
        pending += [(child, False) for child in by_depth]


def draw_order(record: OrderRecord, path: Path) -> None:
    """Draw an order into a file, as SVG or PNG by its ending; BadInputError for another one, or a file that fails."""
    if path.suffix not in ENDINGS:
        raise BadInputError("--out", str(path), f"a file that ends in {' or '.join(ENDINGS)}")
    content = order_picture(record).encode()
    if path.suffix == ".png":
        from hpccoll.render.chart_base import chart_engine

        content = chart_engine().svg_to_png(content.decode(), scale=2)
    with writing(path), replacing_file(path.resolve()) as unfinished:
        unfinished.write_bytes(content)
