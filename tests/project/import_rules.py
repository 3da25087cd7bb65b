"""The rules of the house that an import can break, checked on the source without running it.

    arrays   inference/{sites,ep,exact,ard,vb,subset,mixture,...}      NumPy, SciPy, numba
    graph    models/, inference/{graph,steps,bridge}, reading.py      PyMC, PyTensor
    tree     inference/{fit,tree,predict,...}.py, run*.py, diagnostics/    DataTree in, DataTree out

`python tests/project/import_rules.py` prints what is wrong, one line each, and ends with 1 if there
is anything; with the argument `graph` it prints how the sub-packages import each other.
An import inside a function counts for every rule but two (cycles, what a bare import loads), an
import for type checkers only counts for none but the layers.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

FOLDERS = {  # on disk -> as imported
    "ardvark": "ardvark",
    "models": "ardvark.models",
    "inference": "ardvark.inference",
    "diagnostics": "ardvark.diagnostics",
    "studies": "ardvark.studies",
}
NOT_FOR_ARRAYS = {"pymc", "pytensor", "arviz", "arviz_base", "arviz_stats", "arviz_plots"}
NOT_FOR_ARRAYS |= {"xarray", "pandas", "nutpie"}
# The layer of a file of `inference` follows from its place.
ABOVE_ARRAYS = (
    "graph",
    "pytensor_graphs",
    "pymc_models",
    "joint",
    "steps",
    "hyper",
    "samplers",
    "bridge",
)  # sub-packages
ARRAYS_THERE = ("samplers.elliptical_slice", "samplers.chain_statistics", "samplers.short_chains")
ARRAYS_THERE += ("bridge.bridge", "hyper.axes", "hyper.descend", "hyper.integrate", "hyper.pareto")
ARRAYS_AT_THE_DOOR = ("laplace", "reversible_jump")
ABOVE_BY_NAME = ("tree", "reading", "hyper", "theta")  # and run*.py
WALK_GRAPHS = ("graph", "pytensor_graphs", "pymc_models", "joint", "steps", "bridge")
DOORS = (
    "ardvark.sklearn",
    "ardvark.steps",
    "ardvark.studies",
    "ardvark.commands",
)
ABOVE = {  # a package never imports what stands above it
    "ardvark.models": ("ardvark.inference", "ardvark.diagnostics", *DOORS),
    "ardvark.inference": ("ardvark.diagnostics", *DOORS),
    "ardvark.diagnostics": DOORS,
}
LIGHT = {"ardvark", "ardvark.errors"}  # what a bare import may load: almost nothing
LIGHT_MAY_LOAD = {"cyclopts", "lazy_loader"}
CODE_IN_DATA = {
    "pickle",
    "cPickle",
    "_pickle",
    "joblib",
    "cloudpickle",
    "dill",
    "shelve",
    "marshal",
}
# What goes between the processes of one run is no file: one module may send it, by these names.
BETWEEN_PROCESSES = {
    "ardvark.inference.running.executor": {
        "cloudpickle",
        "joblib.externals.loky.get_reusable_executor",
    }
}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module: `target` is the longest dotted name that is surely a module."""

    target: str
    line: int
    at_import: bool  # runs when the importing module is imported
    typing_only: bool


@dataclass
class Source:
    """One parsed file."""

    path: Path
    name: str
    tree: ast.Module
    imports: list[Import] = field(default_factory=list)

    @cached_property
    def loads(self) -> list[Import]:
        """What importing this module imports at once."""
        return [i for i in self.imports if i.at_import and not i.typing_only]


class Imports(ast.NodeVisitor):
    """Collects the imports of one module, with where they stand."""

    def __init__(self, modules: set[str], homes: dict[str, str]) -> None:
        self.modules, self.homes = modules, homes
        self.depth, self.typing, self.found = 0, False, list[Import]()

    def add(self, target: str, node: ast.AST) -> None:
        line = getattr(node, "lineno", 0)
        self.found.append(Import(target, line, self.depth == 0, self.typing))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        for alias in node.names:
            full = f"{base}.{alias.name}"
            if base == "ardvark" and alias.name in self.homes:
                full = self.homes[alias.name]  # a public name stands for the module it lives in
            known = full in self.modules or not base.startswith("ardvark")
            self.add(full if known else base, node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        name = getattr(function, "attr", getattr(function, "id", ""))
        first = node.args[0] if node.args else None
        if (
            name in ("import_module", "__import__")
            and isinstance(first, ast.Constant)
            and isinstance(first.value, str)
        ):
            self.add(first.value, node)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        test = ast.unparse(node.test).split(".")[-1]
        before, self.typing = self.typing, self.typing or test == "TYPE_CHECKING"
        for child in node.body:
            self.visit(child)
        self.typing = before
        for child in node.orelse:
            self.visit(child)

    def visit_FunctionDef(self, node: ast.AST) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef


def read(root: Path) -> dict[str, Source]:
    """Every module of the package under its import name."""
    sources = {}
    for folder, package in FOLDERS.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            name = ".".join((package, *(p for p in parts if p != "__init__")))
            sources[name] = Source(path, name, ast.parse(path.read_text(), str(path)))
    homes = public_homes(root / "ardvark" / "__init__.pyi")
    for source in sources.values():
        visitor = Imports(set(sources), homes)
        visitor.visit(source.tree)
        source.imports = visitor.found
    return sources


def public_homes(stub: Path) -> dict[str, str]:
    """Public name -> full name of the module it lives in, from the stub of the root."""
    imports = [n for n in ast.parse(stub.read_text()).body if isinstance(n, ast.ImportFrom)]
    return {
        alias.name: f"ardvark.{node.module or alias.name}"
        for node in imports
        for alias in node.names
    }


def place(name: str) -> list[str]:
    """Parts of a module's name below `ardvark.inference`, [] for all others."""
    head, _, below = name.partition("ardvark.inference.")
    return below.split(".") if below and not head else []


def of_arrays(name: str) -> bool:
    """Whether a module belongs to the array layer."""
    parts = place(name)
    if len(parts) < 2:
        return parts != [] and parts[0] in ARRAYS_AT_THE_DOOR
    if parts[0] in ABOVE_ARRAYS:
        return ".".join(parts) in ARRAYS_THERE
    return not parts[-1].startswith("run") and parts[-1] not in ABOVE_BY_NAME


def walks_graphs(name: str) -> bool:
    """Whether a module may take a graph apart or put one together."""
    parts = place(name)
    return parts[:1] == ["extend"] or (
        parts != [] and (parts[0] in WALK_GRAPHS or parts[-1] in ("reading", "theta"))
    )


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def top(name: str) -> str:
    return name.partition(".")[0]


def reach(sources: dict[str, Source], start: str) -> dict[str, tuple[Source, Import]]:
    """Third-party packages that importing `start` loads -> the file and import that does it."""
    found: dict[str, tuple[Source, Import]] = {}
    seen, todo = set[str](), [start]
    while todo:
        name = todo.pop()
        # Python imports a.b before a.b.c; the longest known prefix covers `import a.b.name`.
        for end in range(1, name.count(".") + 2):
            part = ".".join(name.split(".")[:end])
            if part in seen or part not in sources:
                continue
            seen.add(part)
            for item in sources[part].loads:
                if top(item.target) == "ardvark":
                    todo.append(item.target)
                elif top(item.target) not in sys.stdlib_module_names:
                    found.setdefault(top(item.target), (sources[part], item))
    return found


def layer_violations(sources: dict[str, Source]) -> Iterator[tuple[Source, int, str]]:
    """No file imports what its layer may not know."""
    for name, source in sources.items():
        for item in source.imports:
            target, line = item.target, item.line
            if of_arrays(name) and top(target) in NOT_FOR_ARRAYS:
                yield source, line, f"the array layer must not import {target}"
            if (
                within(name, "ardvark.inference")
                and within(target, "pytensor.graph")
                and not walks_graphs(name)
            ):
                yield source, line, f"{target} is for the graph layer only (see WALK_GRAPHS)"
            for package, above in ABOVE.items():
                if within(name, package) and any(within(target, a) for a in above):
                    yield source, line, f"{package} must not import {target}"
                if within(name, package) and target == "ardvark" and not item.typing_only:
                    yield source, line, "import the module that has it, not the root `ardvark`"


def load_violations(sources: dict[str, Source]) -> Iterator[tuple[Source, int, str]]:
    """What importing a light or an array module loads, through every module on the way."""
    light = {n for n in sources if n in LIGHT or within(n, "ardvark.commands")}
    for name in sorted(n for n in sources if n in light or of_arrays(n)):
        for package, (source, item) in reach(sources, name).items():
            heavy = name in light and package not in LIGHT_MAY_LOAD
            if heavy or (of_arrays(name) and package in NOT_FOR_ARRAYS):
                yield source, item.line, f"importing {name} would load {package}"


def pickle_violations(sources: dict[str, Source]) -> Iterator[tuple[Source, int, str]]:
    """No file of the package can run code that came as data."""
    for source in sources.values():
        for item in source.imports:
            allowed = item.target in BETWEEN_PROCESSES.get(source.name, ())
            if CODE_IN_DATA & set(item.target.split(".")) and not allowed:
                yield source, item.line, f"{item.target} can run code from a file: use zarr or JSON"
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called.startswith("cloudpickle.") and called[12:] not in ("dumps", "loads"):
                yield source, node.lineno, f"{called} can run code from a file: use zarr or JSON"
            if getattr(node.func, "attr", "") in ("read_pickle", "to_pickle"):
                yield source, node.lineno, "a pickle can run code: use zarr or JSON"
            for keyword in node.keywords:
                asked = not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
                if keyword.arg == "allow_pickle" and asked:
                    yield source, node.lineno, "allow_pickle can run code from a file"


def cycle_violations(sources: dict[str, Source]) -> Iterator[tuple[Source, int, str]]:
    """No import cycle among the package's modules when they are loaded."""
    graph = {
        name: {i.target for i in source.loads if i.target in sources and i.target != name}
        for name, source in sources.items()
    }
    if cycle := cycle_in(graph):
        yield sources[cycle[0]], 1, "import cycle: " + " <- ".join(cycle)


def cycle_in(graph: Mapping[str, Iterable[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def sub_packages(sources: dict[str, Source]) -> set[str]:
    """Folders just below `ardvark` or below one of its packages; a nested one is part of these."""
    folders = {name for name, source in sources.items() if source.path.name == "__init__.py"}
    first = {name for name in folders if name.count(".") == 1}
    return {
        name
        for name in folders
        if (name in first and not any(within(n, name) and n != name for n in folders))
        or (name.count(".") == 2 and name.rpartition(".")[0] in first)
    }


def package_graph(sources: dict[str, Source]) -> dict[str, dict[str, tuple[Source, int]]]:
    """Sub-package -> those it imports, and where: imports inside functions count too."""
    packages = sub_packages(sources)

    def home(name: str) -> str | None:
        return next((p for p in packages if within(name, p)), None)

    graph: dict[str, dict[str, tuple[Source, int]]] = {package: {} for package in sorted(packages)}
    for name, source in sources.items():
        for item in source.imports:
            here, there = home(name), home(item.target)
            if here and there and here != there and not item.typing_only:
                graph[here].setdefault(there, (source, item.line))
    return graph


def package_violations(sources: dict[str, Source]) -> Iterator[tuple[Source, int, str]]:
    """No cycle among the sub-packages, not even by an import inside a function."""
    graph = package_graph(sources)
    if cycle := cycle_in(graph):
        source, line = graph[cycle[1]][cycle[0]]
        yield source, line, "cycle of sub-packages: " + " <- ".join(cycle)


def longest_chain(graph: dict[str, dict[str, tuple[Source, int]]]) -> list[str]:
    """The most sub-packages of which each imports the next."""
    chains: dict[str, list[str]] = {}
    for package in TopologicalSorter(graph).static_order():  # those that import nothing first
        below = max((chains[p] for p in graph.get(package, ())), key=len, default=[])
        chains[package] = [package, *below]
    return max(chains.values(), key=len)


def docstring_violations(root: Path) -> Iterator[str]:
    """Every file says first what it is. Notebooks (NN_name.py) say it in their first cell."""
    for folder in (*FOLDERS, "tests", "notebooks"):
        for path in sorted((root / folder).rglob("*.py")):
            notebook = folder == "notebooks" and path.name[0].isdigit()
            if not notebook and not (ast.get_docstring(ast.parse(path.read_text())) or "").strip(
                ". "
            ):
                yield f"{path.relative_to(root)}:1: no module docstring"


def violations(root: Path) -> list[str]:
    """Every broken rule below `root` as `file:line: what is wrong`."""
    sources = read(root)
    checks = (
        layer_violations,
        load_violations,
        pickle_violations,
        cycle_violations,
        package_violations,
    )
    found = [
        f"{source.path.relative_to(root)}:{line}: {message}"
        for check in checks
        for source, line, message in check(sources)
    ]
    return [*found, *docstring_violations(root)]


def describe(root: Path) -> Iterator[str]:
    """How the sub-packages import each other: how many import each, and the longest chain."""
    graph = package_graph(read(root))
    users = {package: [p for p in graph if package in graph[p]] for package in graph}
    for package in sorted(graph, key=lambda p: -len(users[p])):
        yield f"{package}: imported by {len(users[package])}, imports {len(graph[package])}"
    chain = longest_chain(graph)
    yield f"longest chain, {len(chain)}: " + " -> ".join(chain)


def main() -> int:
    root = Path(__file__).resolve().parents[2]
    if sys.argv[1:] == ["graph"]:
        print(*describe(root), sep="\n")
        return 0
    found = violations(root)
    for message in found:
        print(message)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
