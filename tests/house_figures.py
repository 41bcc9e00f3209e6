"""How the house reads: ``python tests/house_figures.py`` prints its density, idioms, phrases, vague names and circles.

A reader reads statements, and a formatter cannot change how many there are. The figures are those
of function bodies, without docstrings. Rich, pytest, Typer and Snakemake have 9 to 10 syntax nodes
a statement, and of 1,000 statements 11 to 41 have a conditional expression, and 17 to 37 a
comprehension.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "hpccoll"

LONG_FUNCTION, DENSE_NODES = 4, 25
"""A function of more statements than the first is dense if it has more nodes a statement than the second."""

COMPREHENSIONS = ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp


@dataclass(frozen=True)
class Density:
    """The sums over function bodies: of one function, of a room, of the package."""

    nodes: int = 0
    statements: int = 0
    conditionals: int = 0
    comprehensions: int = 0
    dense_functions: tuple[str, ...] = ()

    def __add__(self, other: "Density") -> "Density":
        return Density(
            self.nodes + other.nodes,
            self.statements + other.statements,
            self.conditionals + other.conditionals,
            self.comprehensions + other.comprehensions,
            self.dense_functions + other.dense_functions,
        )

    @property
    def figures(self) -> tuple[float, int, int, int]:
        """Nodes a statement; conditional expressions and comprehensions per 1,000 statements; dense functions."""
        statements = max(self.statements, 1)
        return (
            round(self.nodes / statements, 2),
            round(1000 * self.conditionals / statements),
            round(1000 * self.comprehensions / statements),
            len(self.dense_functions),
        )


def rooms() -> list[str]:
    """Return the rooms of the package: its directories, and the files beside them."""
    return sorted(
        path.name
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    )


def files(room: str) -> list[Path]:
    path = PACKAGE / room
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def outer_functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions and methods below a node that are not inside another function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        else:
            yield from outer_functions(child)


def read_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function body, without its docstring and those of the functions in it."""
    body = function.body if ast.get_docstring(function) is None else function.body[1:]
    pending: list[ast.AST] = [*body]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from read_nodes(node)
        else:
            pending.extend(ast.iter_child_nodes(node))


def density_of_function(function: ast.FunctionDef | ast.AsyncFunctionDef, where: str) -> Density:
    nodes = [*read_nodes(function)]
    statements = sum(isinstance(node, ast.stmt) for node in nodes)
    is_dense = statements > LONG_FUNCTION and len(nodes) > DENSE_NODES * statements
    return Density(
        nodes=len(nodes),
        statements=statements,
        conditionals=sum(isinstance(node, ast.IfExp) for node in nodes),
        comprehensions=sum(isinstance(node, COMPREHENSIONS) for node in nodes),
        dense_functions=(where,) if is_dense else (),
    )


def density_of_file(path: Path) -> Density:
    density = Density()
    for function in outer_functions(syntax_tree(path)):
        where = f"{path.relative_to(PACKAGE)}:{function.name}"
        density += density_of_function(function, where)
    return density


def density_of_room(room: str) -> Density:
    density = Density()
    for path in files(room):
        density += density_of_file(path)
    return density


def _is_list_of_one(node: ast.AST) -> bool:
    is_literal = isinstance(node, ast.comprehension) and isinstance(node.iter, ast.List | ast.Tuple)
    return (
        is_literal and len(node.iter.elts) == 1 and not isinstance(node.iter.elts[0], ast.Starred)
    )


def _is_text_times_condition(node: ast.AST) -> bool:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    sides = node.left, node.right
    is_text = any(isinstance(side, ast.JoinedStr) or _is_string(side) for side in sides)
    is_condition = any(
        isinstance(side, ast.Compare | ast.BoolOp) or _is_bool(side) for side in sides
    )
    return is_text and is_condition


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_bool(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "bool"


def _is_walrus_in_filter(node: ast.AST) -> bool:
    if not isinstance(node, ast.comprehension):
        return False
    return any(
        isinstance(child, ast.NamedExpr) for condition in node.ifs for child in ast.walk(condition)
    )


def _is_nested_conditional(node: ast.AST) -> bool:
    if not isinstance(node, ast.IfExp):
        return False
    return any(isinstance(child, ast.IfExp) for child in ast.walk(node) if child is not node)


def _is_starred_call(node: ast.AST) -> bool:
    if not isinstance(node, ast.List) or len(node.elts) != 1:
        return False
    return isinstance(node.elts[0], ast.Starred) and isinstance(node.elts[0].value, ast.Call)


def _is_long_unpacking(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return isinstance(node.targets[0], ast.Tuple) and len(node.targets[0].elts) > 2


IDIOMS: dict[str, Callable[[ast.AST], bool]] = {
    "a loop over one value, to name it": _is_list_of_one,
    "a text times a condition": _is_text_times_condition,
    "a walrus in a filter": _is_walrus_in_filter,
    "a conditional expression within another": _is_nested_conditional,
    "[*call()] for list(call())": _is_starred_call,
    "three or more names from a tuple": _is_long_unpacking,
}
"""What a reader has to stop at, by what it is; ``test_house.py`` limits how often each occurs."""


def idioms() -> dict[str, int]:
    """Return how often each idiom occurs in the package."""
    counts = dict.fromkeys(IDIOMS, 0)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(syntax_tree(path)):
            for name, is_idiom in IDIOMS.items():
                counts[name] += is_idiom(node)
    return counts


PHRASES = {
    "is no X": r"(?<!here )\b(?:is|are) no (?!longer\b|more\b|other\b|such\b)\w+",
    "of which": r"\bof (?:which|whom)\b",
    "so many": r"\bso many\b",
    "as far as": r"\bas far as\b",
    "of several, of these": r"\bof (?:several|these)\b",
}
"""Phrases that are correct and foreign, as patterns."""


def phrases() -> dict[str, int]:
    """Return how often each phrase occurs in the package and in the guides."""
    texts = [path.read_text() for path in PACKAGE.rglob("*.py")]
    for pattern in ("*.md", "*/*.md", "hpccoll/**/*.toml"):
        texts += [path.read_text() for path in PACKAGE.parent.glob(pattern)]
    text = "\n".join(texts)
    return {name: len(re.findall(pattern, text)) for name, pattern in PHRASES.items()}


VAGUE_NAMES = (
    "each",
    "found",
    "known",
    "other",
    "others",
    "one",
    "what",
    "of",
    "given",
    "asked",
    "more",
)
"""Names of variables and parameters that do not say what a value is; those that begin with ``of_`` count, too."""


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the variables and parameters that a module binds, as often as it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def vague_names() -> dict[str, int]:
    """Return how often the package binds each vague name."""
    counts = dict.fromkeys((*VAGUE_NAMES, "of_..."), 0)
    for path in PACKAGE.rglob("*.py"):
        for name in bound_names(syntax_tree(path)):
            kind = "of_..." if name.startswith("of_") else name
            if kind in counts:
                counts[kind] += 1
    return counts


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file, which nobody changes: several figures look at each file."""
    return ast.parse(path.read_text(), str(path))


def modules() -> dict[str, Path]:
    """Return the files of the package by the dotted names of their modules."""
    named = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        named[".".join(parts).removesuffix(".__init__")] = path
    return named


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and the nodes below it, without those that only a type checker reads."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, ast.If) and ast.unparse(current.test) == "TYPE_CHECKING":
            continue
        yield current
        waiting += ast.iter_child_nodes(current)


def import_graph(nodes: Callable[[ast.AST], Iterator[ast.AST]]) -> dict[str, set[str]]:
    """Return the modules of the package that each of them imports, also late, within functions.

    ``nodes`` are ``executed``, or ``ast.walk`` to count what only a type checker imports, too.
    """
    paths = modules()
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        graph[module] = set()
        for node in nodes(syntax_tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module in paths:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    graph[module].add(full if full in paths else node.module)
    return graph


def circle() -> list[str]:
    """Return the modules of a circle of imports, also of types; empty if there is none."""
    try:
        TopologicalSorter(import_graph(ast.walk)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def main() -> None:
    total = Density()
    print(f"{'room':<12} statements  nodes  conditionals  comprehensions  dense functions")
    for room in rooms():
        density = density_of_room(room)
        total += density
        print_density(room, density)
    print_density("all", total)
    skips = sum(path.read_text().count("# fmt: skip") for path in PACKAGE.rglob("*.py"))
    print_counts("idioms", {**idioms(), "fmt: skip": skips})
    print_counts("phrases", phrases())
    print_counts("vague names", vague_names())
    print(f"\ncircle of imports: {' -> '.join(circle()) or 'none'}")


def print_counts(title: str, counts: dict[str, int]) -> None:
    print(f"\n{title}")
    for name, count in counts.items():
        print(f"{count:>6}  {name}")


def print_density(name: str, density: Density) -> None:
    nodes, conditionals, comprehensions, dense = density.figures
    print(
        f"{name:<12} {density.statements:>10} {nodes:>6} {conditionals:>13} {comprehensions:>15} {dense:>16}"
    )


if __name__ == "__main__":
    main()
