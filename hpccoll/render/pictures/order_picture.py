"""The picture of an order: the buffer, coloured by tree, and each tree with the ranks as its leaves."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from hpccoll.analysis.order_record import OrderRecord
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

WIDTH, TALL = 720.0, 26.0
"""The width and the height of the buffer, in pixels."""

LEVEL, TALLEST = 30.0, 180.0
"""The height of a level of a tree, and of the whole tree at most, in pixels."""

ACROSS = 20.0
"""The distance between two leaves, in pixels."""


def order_picture(record: OrderRecord) -> str:
    """Return the picture of an order as an SVG file."""
    drawable = [tree.tree for tree in record.trees if tree.tree is not None]
    drawn = [tree for tree in drawable if len(tree.ranks) <= MOST_LEAVES][:MOST_DRAWN]
    panels: list[Sequence[SvgShape]] = [
        _titled("which elements have which order", list(_buffer(record)))
    ]
    panels += _rows(drawn)
    shapes = svg.stacked(panels, top=0.0)
    title = order_title(record)
    lines = [count_sentence(record), bound_sentence(record)]
    if not drawn:
        lines.append(f"orders of more than {MOST_LEAVES} ranks are not drawn")
    elif len(drawn) < len(record.trees):
        lines.append(f"the first {len(drawn)} orders are drawn")
    first_line = -16.0 - 18.0 * len(lines)
    at_title = Point(0, first_line - 22)
    heading: list[SvgShape] = [Text(at_title, title, size=16, anchor="start", weight=700)]
    for number, line in enumerate(lines):
        at = Point(0, first_line + 18 * number)
        heading.append(Text(at, line, anchor="start", colour=MUTED))
    return svg.svg_document([*heading, *shapes], title, "; ".join(lines))


def _rows(trees: Sequence[SummationTree]) -> Iterator[Sequence[SvgShape]]:
    """Yield rows of trees, as many in each as fit below the buffer."""
    if not trees:
        return
    across = (1 + len(trees[0].ranks)) * ACROSS  # all trees have the same ranks
    in_a_row = max(1, int(WIDTH // across))
    for first in range(0, len(trees), in_a_row):
        row = []
        for number, tree in enumerate(trees[first : first + in_a_row], first):
            row.append((f"order {number + 1}", list(tree_shapes(tree, _colour(number)))))
        yield svg.place_side_by_side(row)


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
    level = min(LEVEL, TALLEST / max(1, tree.depth))
    dots: list[SvgShape] = []
    for current in _in_drawing_order(tree):
        if current.rank is not None:
            at = Point(leaves * ACROSS, 0)
            leaves += 1
            dots.append(Text(at.moved(0, 14), str(current.rank), size=11))
        else:
            across = [places[child].x for child in current.children]
            at = Point(sum(across) / len(across), -current.depth * level)
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
