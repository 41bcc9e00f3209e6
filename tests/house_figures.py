"""How dense the code of each room is: ``python tests/house_figures.py`` prints a table.

A reader reads statements, and a formatter cannot change how many there are. The figures are those of function bodies,
without docstrings. Rich, pytest, Typer and Snakemake have 9 to 10 syntax nodes a statement, and of 1,000 statements 11
to 41 have a conditional expression, and 17 to 37 a comprehension.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
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
    return sorted(path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())


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
    for function in outer_functions(ast.parse(path.read_text())):
        where = f"{path.relative_to(PACKAGE)}:{function.name}"
        density += density_of_function(function, where)
    return density


def density_of_room(room: str) -> Density:
    density = Density()
    for path in files(room):
        density += density_of_file(path)
    return density


def main() -> None:
    total = Density()
    print(f"{'room':<12} statements  nodes  conditionals  comprehensions  dense functions")
    for room in rooms():
        density = density_of_room(room)
        total += density
        print_density(room, density)
    print_density("all", total)


def print_density(name: str, density: Density) -> None:
    nodes, conditionals, comprehensions, dense = density.figures
    print(f"{name:<12} {density.statements:>10} {nodes:>6} {conditionals:>13} {comprehensions:>15} {dense:>16}")


if __name__ == "__main__":
    main()
