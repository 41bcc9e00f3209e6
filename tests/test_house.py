"""The house rules that a program can check: imports only go down, and rank processes stay light."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from house_figures import (
    PACKAGE,
    circle,
    density_of_room,
    executed,
    files,
    idioms,
    import_graph,
    modules,
    phrases,
    rooms,
    syntax_tree,
    vague_names,
)

from hpccoll.store.call_key import CallKey

MAY_IMPORT = {
    "common": "numpy msgspec pydantic pydantic_core yaml",
    "executor": "schedule common numpy mpi4py hatchling",
    "schedule": "common numpy ml_dtypes",
    "algorithms": "schedule",
    "host": "common numpy mpi4py pynvml",
    "transports": "executor host schedule common numpy mpi4py cupy cupyx cupy_backends nccl",
    "cases": "algorithms schedule host common msgspec",
    "evidence": "cases host common msgspec",
    "order": "cases schedule common numpy msgspec",
    "store": "order cases schedule common numpy h5py msgspec",
    "diagnosis": "store common numpy scipy",
    "analysis": "evidence store cases schedule common numpy scipy pandas xarray msgspec",
    "model": "analysis evidence store cases host schedule common numpy scipy pydantic pydantic_core",
    "traces": "analysis evidence store cases schedule common numpy msgspec",
    "judge": "traces model analysis evidence store cases schedule common numpy scipy msgspec",
    "interop": "judge analysis store cases host schedule common numpy reframe",
    "measure": (
        "order evidence diagnosis analysis transports executor store cases host schedule common numpy mpi4py ml_dtypes"
    ),
    "render": (
        "judge traces measure diagnosis analysis order evidence model store cases host schedule common numpy scipy"
        " altair jinja2 vl_convert junitparser prometheus_client pyarrow"
    ),
    "sweep": (
        "interop evidence diagnosis analysis store cases executor host schedule common numpy pydantic yaml snakemake"
    ),
    "cli": (
        "judge traces order evidence diagnosis analysis measure sweep render interop model store cases host"
        " schedule common shtab mpi4py"
    ),
    "extensions": (
        "cli render sweep interop measure judge traces diagnosis analysis evidence model store cases executor"
        " transports host schedule common numpy scipy mpi4py msgspec pydantic altair cupy ml_dtypes"
    ),
    "__main__.py": "cli common",
    "result_set.py": "judge analysis store cases common pandas xarray",
    "__init__.py": "result_set common",
}
"""For each room: the rooms below it and the libraries that it may import, besides itself and the standard library."""

LIGHT = (
    "__main__.py",
    "cli/rank_program.py",
    "cli/job_program.py",
    "cli/run_options.py",
    "cli/diagnose.py",
    "cli/order.py",
    "measure",
    "order",
    "evidence",
    "cases",
    "host",
    "executor",
    "diagnosis",
    "extensions/steps/training",
    "extensions/steps/measure",
    "extensions/plans/mscclpp_reader.py",
    "extensions/tables/recognition.py",
    "render/run_table.py",
    "render/printed_evidence.py",
)
"""The rooms and modules that a rank process begins with, thousands of times at once on one file system."""

LATER = PACKAGE / "diagnosis" / "diagnosis_file.py"
"""What rank 0 imports when it writes results, with HDF5."""

DOOR = PACKAGE / "common" / "extensions.py"
"""The one file of the core that knows where extensions are."""

HEAVY = (
    "shtab",
    "rich",
    "pydantic",
    "altair",
    "jinja2",
    "vl_convert",
    "snakemake",
    "yaml",
    "scipy",
    "h5py",
    "cupy",
    "cupyx",
    "nccl",
    "pynvml",
    "ml_dtypes",
    "hatchling",
    "pandas",
    "xarray",
)


def imported(path: Path) -> Iterator[str]:
    """Yield what a file imports, anywhere in it: a room of ours by its name, a library by its first name."""
    for node in ast.walk(syntax_tree(path)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            first, *rest = name.split(".")
            if first == "hpccoll" and rest and rest[0] != "__version__":
                yield rest[0]
            elif first != "hpccoll" and first not in sys.stdlib_module_names:
                yield first


def test_every_room_is_in_the_table():
    assert set(rooms()) == set(MAY_IMPORT)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_only_go_down(room):
    allowed = {*MAY_IMPORT[room].split(), room.removesuffix(".py")}
    strange = {
        f"{path.relative_to(PACKAGE)}: {name}" for path in files(room) for name in imported(path)
    } - {f"{path.relative_to(PACKAGE)}: {name}" for path in files(room) for name in allowed}
    assert not strange


def test_the_table_itself_only_goes_down():
    below = {room.removesuffix(".py"): set(words.split()) for room, words in MAY_IMPORT.items()}
    settled: set[str] = set()
    while (
        fresh := {room for room, words in below.items() if words & below.keys() <= settled}
        - settled
    ):
        settled |= fresh
    assert settled == below.keys()


def test_only_the_cases_import_algorithms_and_only_measuring_imports_transports():
    importers = {
        room: [name for name, words in MAY_IMPORT.items() if room in words.split()]
        for room in ("algorithms", "transports")
    }
    assert importers == {"algorithms": ["cases"], "transports": ["measure", "extensions"]}


def names_extension(path: Path) -> bool:
    """Return whether a file imports an extension, or names one by its module."""
    return "hpccoll.extensions" in path.read_text()


def test_the_core_names_no_extension():
    core = [path for room in rooms() if room != "extensions" for path in files(room)]
    assert [path for path in core if names_extension(path) and path != DOOR] == []


def test_one_module_fills_the_registry():
    importers = [
        path
        for room in rooms()
        if room != "algorithms"
        for path in files(room)
        if "algorithms" in imported(path)
    ]
    assert importers == [PACKAGE / "cases" / "algorithm_registry.py"]


@pytest.mark.parametrize("room", ["cases", "sweep"])
def test_planning_imports_nothing_that_measures(room):
    below, found = set(), {room}
    while found:
        below |= found
        found = {
            name
            for each in found
            for name in MAY_IMPORT.get(each, MAY_IMPORT.get(f"{each}.py", "")).split()
        }
        found = {name for name in found - below if {name, f"{name}.py"} & MAY_IMPORT.keys()}
    assert below.isdisjoint({"measure", "transports"})


def test_a_rank_process_imports_nothing_heavy():
    paths = [path for room in LIGHT for path in files(room) if path != LATER]
    parts = [path.relative_to(PACKAGE.parent).with_suffix("").parts for path in paths]
    modules = sorted({".".join(part for part in path if part != "__init__") for path in parts})
    program = f"import sys\nfor name in {modules}: __import__(name)\nprint(*(set({HEAVY}) & sys.modules.keys()))"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ran.stdout.split(), ran.stderr) == ([], "")


def test_no_two_public_classes_have_one_name():
    nodes = (node for path in modules().values() for node in syntax_tree(path).body)
    names = Counter(
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


SEVERAL_OF_ONE_NAME = {
    "main": "each program begins with one",
    "recognises": "each reader of a recorded job has one",
    "read": "each reader of a recorded job has one",
}
"""Names of several public functions, and why."""


def functions_of_commands(module: ast.Module) -> set[str]:
    """Return the names of the functions that are commands, in a module."""
    calls = (
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Command"
    )
    return {
        ast.unparse(keyword.value)
        for call in calls
        for keyword in call.keywords
        if keyword.arg == "run"
    }


def test_no_two_public_functions_have_one_name():
    """Decorators register algorithms, which have the names that users type, as commands have."""
    names: Counter[str] = Counter()
    for path in modules().values():
        module = syntax_tree(path)
        functions = [
            node
            for node in module.body
            if isinstance(node, ast.FunctionDef) and not node.decorator_list
        ]
        public = {function.name for function in functions if not function.name.startswith("_")}
        names.update(public - functions_of_commands(module))
    assert {name for name, count in names.items() if count > 1} == SEVERAL_OF_ONE_NAME.keys()


LONGEST_CHAIN = 6
"""The most files of one room that import one another in a row: a reader of the first one may have to open them all."""


def test_no_imports_form_a_circle_not_even_those_of_types():
    assert circle() == []


def room_of(module: str) -> list[str]:
    """Return the room of a module; an extension has rooms as the core has."""
    parts = module.split(".")
    return parts[:4] if parts[1:2] == ["extensions"] else parts[:2]


def test_no_chain_of_imports_in_a_room_is_long():
    graph, paths = import_graph(executed), modules()
    chains: dict[str, tuple[str, ...]] = {}
    for module in TopologicalSorter(graph).static_order():
        room = room_of(module)
        below = (chains[other] for other in graph[module] if room_of(other) == room)
        # a table of contents is no page
        page = () if paths[module].name == "__init__.py" else (module,)
        chains[module] = (*page, *max(below, key=len, default=()))
    assert [chain for chain in chains.values() if len(chain) > LONGEST_CHAIN] == []


def row_fields(node: ast.Tuple) -> int:
    """Return how many elements of a tuple are fields of a row, or of a point with a row, that a CallKey has."""
    names = {field.name for field in fields(CallKey)}
    attributes = [
        each for each in node.elts if isinstance(each, ast.Attribute) and each.attr in names
    ]
    owners = [ast.unparse(each.value).rpartition(".")[2] for each in attributes]
    return sum(owner in {"row", "first", "point", "p", "r"} for owner in owners)


def test_what_identifies_a_call_is_a_call_key_and_no_tuple_of_fields_of_a_row():
    """Such a tuple may order rows, in a lambda or a function called an order, or be words to ``filter``."""
    tuples = []
    for module, path in modules().items():
        tree = syntax_tree(path)
        sorting = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Lambda)
            or (isinstance(node, ast.Call) and ast.unparse(node.func) == "filter")
            or (isinstance(node, ast.FunctionDef) and node.name.endswith("order"))
        ]
        ordered = {id(child) for node in sorting for child in ast.walk(node)}
        tuples += [
            f"{module}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Tuple) and id(node) not in ordered and row_fields(node) > 1
        ]
    assert tuples == []


DENSEST = {
    "__init__.py": (7.17, 0, 0, 0),
    "__main__.py": (8.98, 0, 0, 0),
    "algorithms": (16.76, 18, 121, 0),
    "analysis": (13.51, 34, 111, 0),
    "cases": (13.27, 38, 71, 0),
    "cli": (10.36, 38, 50, 0),
    "common": (11.89, 35, 52, 0),
    "diagnosis": (14.03, 21, 66, 0),
    "evidence": (12.89, 23, 75, 0),
    "executor": (13.16, 34, 80, 0),
    "extensions": (13.71, 28, 83, 0),
    "host": (12.2, 19, 69, 0),
    "interop": (13.55, 42, 71, 0),
    "judge": (13.24, 43, 98, 0),
    "measure": (12.6, 33, 75, 0),
    "model": (14.28, 41, 82, 0),
    "order": (13.7, 24, 121, 0),
    "render": (13.33, 47, 107, 0),
    "result_set.py": (12.12, 18, 79, 0),
    "schedule": (13.81, 32, 69, 0),
    "store": (13.92, 50, 90, 0),
    "sweep": (12.33, 33, 68, 0),
    "traces": (13.41, 20, 100, 0),
    "transports": (12.57, 46, 70, 0),
}
"""How dense each room may be (house_figures.py). If a room becomes less dense, its figures here follow."""


@pytest.mark.parametrize("room", DENSEST)
def test_no_room_becomes_denser(room):
    density = density_of_room(room)
    above = [
        figure for figure, most in zip(density.figures, DENSEST[room], strict=True) if figure > most
    ]
    assert not above, (
        f"{density.figures} of at most {DENSEST[room]}; dense: {density.dense_functions}"
    )


def test_the_density_of_every_room_is_limited():
    assert set(rooms()) == DENSEST.keys()


MOST_IDIOMS = {
    "a loop over one value, to name it": 0,
    "a text times a condition": 0,
    "a walrus in a filter": 0,
    "a conditional expression within another": 0,
    "[*call()] for list(call())": 0,
    "three or more names from a tuple": 0,
}
"""How often each idiom of house_figures.py may occur in the package. If one becomes rarer, its figure here follows."""


def test_no_idiom_at_which_readers_stop_spreads():
    spread = {name: count for name, count in idioms().items() if count > MOST_IDIOMS[name]}
    assert spread == {}


MOST_PHRASES = {
    "is no X": 0,
    "of which": 0,
    "so many": 0,
    "as far as": 0,
    "of several, of these": 0,
}
"""How often each phrase of house_figures.py may occur in code and guides. If one becomes rarer, its figure follows."""


def test_no_foreign_phrase_spreads():
    spread = {name: count for name, count in phrases().items() if count > MOST_PHRASES[name]}
    assert spread == {}


MOST_VAGUE_NAMES = {
    "each": 0,
    "found": 0,
    "known": 0,
    "other": 11,
    "others": 0,
    "one": 0,
    "what": 3,
    "of": 2,
    "given": 0,
    "asked": 0,
    "more": 0,
    "of_...": 0,
}
"""How often the package may bind each vague name of house_figures.py. If one becomes rarer, its figure follows."""


def test_no_name_that_does_not_say_what_a_value_is_spreads():
    spread = {
        name: count for name, count in vague_names().items() if count > MOST_VAGUE_NAMES[name]
    }
    assert spread == {}


MOST_SKIPS = 21
"""How many statements the formatter may leave as they are: tables whose rows are lines, and nothing else."""


def test_only_tables_are_laid_out_by_hand():
    marked = [
        f"{path}:{number}"
        for path in PACKAGE.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith("# fmt: skip")
    ]
    assert len(marked) <= MOST_SKIPS, marked


PRIVATE_WORDS = {
    "crew",
    "sitting",
    "patient",
    "maker",
    "unmade",
    "varied",
    "unvaried",
    "told",
    "telling",
    "deed",
    "deeds",
    "looks",
    "marks",
    "story",
    "stories",
    "holdings",
    "strangers",
    "natives",
    "stretch",
    "contest",
    "doublings",
    "kin",
    "promise",
    "surroundings",
    "follower",
    "wholes",
    "lack",
    "lacks",
    "crowd",
    "crowds",
    "poison",
    "apart",
    "somebody",
    "nobody",
}
"""Metaphors that once named things here; a reader who knows MPI, NCCL, Slurm and statistics cannot guess them."""


def names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module defines: of functions, classes, arguments, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def test_names_are_terms_of_the_field():
    private = {
        (module, name)
        for module, path in modules().items()
        for name in (module, *names(syntax_tree(path)))
        if PRIVATE_WORDS.intersection(re.findall("[a-z]+", re.sub("([A-Z])", r"_\1", name).lower()))
    }
    assert sorted(private) == []


def test_no_two_test_files_have_one_name():
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_what_is_missing_skips_with_the_reason_unless_all_is_required(require, monkeypatch):
    require(True, "never said")
    monkeypatch.delenv("HPCCOLL_REQUIRE_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is no such tool"):
        require(False, "there is no such tool")
    monkeypatch.setenv("HPCCOLL_REQUIRE_ALL", "1")
    with pytest.raises(
        pytest.fail.Exception, match="HPCCOLL_REQUIRE_ALL is set, and there is no such tool"
    ):
        require(False, "there is no such tool")
