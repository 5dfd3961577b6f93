"""What lies in src/gpf, and which package imports which: a list and a diagram, made from the sources.

    python benchmarks/packages.py [--imports] [--write]

The list has the first line of every file's docstring. In the diagram every import counts, wherever it stands: at the
top of a file, inside a function, or for types only. `--imports` prints the imports of every file instead. `--write`
puts list and diagram into docs/architecture.md.
"""

import argparse
import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from documents import ROOT, insert

SOURCE = ROOT / "src" / "gpf"
Imports = dict[str, set[str]]
"""By module, the modules of ours that it imports."""
ENTRANCES = ("gpf", "__main__")
"""What users import and run, and no file of ours does."""
FACADES = {("gpf.navigation", "gpf.tasks.plume")}
"""Imports for type checkers of a name that is exported further down than it lies; when it runs, it is found by name."""


def main() -> None:
    """Print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--imports", action="store_true", help="print the imports of every file")
    parser.add_argument("--write", action="store_true", help="put list and diagram into docs/architecture.md")
    arguments = parser.parse_args()
    imports = read_imports(SOURCE)
    if arguments.imports:
        for module, imported in sorted(imports.items()):
            print(f"{module}: {', '.join(sorted(imported)) or '-'}")
        return
    for name, text in (("files", file_list(SOURCE)), ("packages", diagram(imports))):
        print(f"{text}\n")
        if arguments.write:
            insert("docs/architecture.md", name, text)


def read_imports(source: Path) -> Imports:
    """The imports of all modules below a folder, which is the package `gpf`."""
    files = {module_name(source, path): path for path in sorted(source.rglob("*.py"))}
    return {
        module: {
            one
            for one in imported_modules(ast.parse(path.read_text()), files)
            if one != module and (module, one) not in FACADES
        }
        for module, path in files.items()
    }


def module_name(source: Path, path: Path) -> str:
    """The dotted name of a file; that of its folder for `__init__.py`."""
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(tree: ast.AST, modules: Mapping[str, object]) -> Iterator[str]:
    """The modules of ours that some code imports, wherever in it.

    `from gpf.runs import folder` imports the file, `from gpf.network import attach` the package.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name for alias in node.names if (name := alias.name) in modules)
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module is None:
                raise ValueError(f"line {node.lineno}: imports must be absolute")
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in modules:
                    yield name
                elif node.module in modules:
                    yield node.module


def package_of(module: str) -> str:
    """The package of a module, or the file that lies beside the packages; `gpf` itself for its `__init__.py`."""
    return module.split(".")[1] if "." in module else module


def between_packages(imports: Imports) -> Imports:
    """By package, the others that it imports."""
    found: Imports = {}
    for module, imported in imports.items():
        others = found.setdefault(package_of(module), set())
        others |= {package_of(one) for one in imported} - {package_of(module)}
    return found


def direct(graph: Imports) -> Imports:
    """A graph without the edges that a longer way replaces: where a -> b -> c, a -> c is left out."""

    def reached(start: str) -> set[str]:
        """Everything behind a package, however far."""
        behind: set[str] = set()
        ahead = [start]
        while ahead:
            new = graph.get(ahead.pop(), set()) - behind
            behind |= new
            ahead += new
        return behind

    return {
        package: {one for one in imported if not any(one in reached(other) for other in imported - {one})}
        for package, imported in graph.items()
    }


def file_list(source: Path, indent: str = "") -> str:
    """Every package and every file with the first line of its docstring, as Markdown."""
    files = sorted(path for path in source.glob("*.py") if not indent or path.name != "__init__.py")
    lines = [f"{indent}- {_line(path)}" for path in files]
    for folder in sorted(path.parent for path in source.glob("*/__init__.py")):
        lines.append(f"{indent}- {_line(folder / '__init__.py', f'{folder.name}/')}")
        lines.append(file_list(folder, f"{indent}    "))
    return "\n".join(lines)


def _line(path: Path, name: str | None = None) -> str:
    first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
    return f"`{name or path.name}`: {first}"


def diagram(imports: Imports) -> str:
    """The packages and their imports in Mermaid; what follows from other arrows is left out."""
    graph = direct({name: some for name, some in between_packages(imports).items() if name not in ENTRANCES})
    lines = [f"    {name} --> {one}" for name, imported in sorted(graph.items()) for one in sorted(imported)]
    return "\n".join(["```mermaid", "graph TD", *lines, "```"])


if __name__ == "__main__":
    main()
