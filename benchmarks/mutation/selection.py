"""Which tests may notice a mutant, the most telling and fastest first."""

import ast
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from mutation.baseline import Baseline
from mutation.sites import Mutant, is_kernel, mentioned_names

FIRST = 40
"""Tests of the first stage: most mutants die here, and the others need not even be collected."""


class Selector:
    """Chooses the tests of a mutant from the baseline and, where coverage is blind, from the sources."""

    def __init__(self, root: Path, baseline: Baseline) -> None:
        self.baseline = baseline
        self._trees = {
            path.relative_to(root).as_posix(): ast.parse(path.read_bytes())
            for path in sorted((root / "src").rglob("*.py"))
        }
        self._test_files = {test.split("::")[0] for test in baseline.seconds}
        self._test_words = {
            file: {name for name, _ in _global_names(ast.parse((root / file).read_bytes()))}
            for file in self._test_files
        }
        self._callers = _kernel_callers(self._trees)
        self._tests_of_file = {
            file: {test for tests in lines.values() for test in tests} for file, lines in baseline.lines.items()
        }

    def stages(self, mutant: Mutant, budget: float) -> tuple[list[list[str]], int]:
        """Tests in the order in which they should run, in up to two stages, and how many are left out.

        Args:
            mutant: What they should notice.
            budget: Seconds that all but the first of them may take together.
        """
        ordered: list[str] = []
        for group in self._groups(mutant):
            ordered += sorted(group - set(ordered), key=self._speed)
        spent = list(itertools.accumulate(self.baseline.seconds[test] for test in ordered))
        chosen = [test for n, test in enumerate(ordered) if n == 0 or spent[n] <= budget]
        stages = [stage for stage in (chosen[:FIRST], chosen[FIRST:]) if stage]
        return stages, len(ordered) - len(chosen)

    def reuses_kernels(self, mutant: Mutant) -> bool:
        """Whether no compiled kernel can depend on the mutated lines, so that none need be compiled again.

        Not so for kernels themselves, for what is computed when the module is imported (numba freezes globals), nor
        in the file that says how kernels are compiled.
        """
        if mutant.kernel or not mutant.in_function:
            return False
        tree = self._trees[mutant.path]
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        names = mutant.function.split(".")
        return "kernel" not in functions and not set(names) & _run_at_import(tree)

    def _groups(self, mutant: Mutant) -> list[set[str]]:
        """Sets of tests, the likeliest to notice first."""
        first, last = mutant.statement
        lines = self.baseline.lines.get(mutant.path, {})
        covering = {test for line in range(first, last + 1) for test in lines.get(line, [])}
        mirror, package = self._mirror(mutant.path), self._package(mutant.path)
        if mutant.kernel:
            callers = self._callers_of(mutant.kernel)
            return [mirror & callers, callers, mirror, package, self._importers(mutant.path)]
        if covering:
            return [covering]
        touching = self._tests_of_file.get(mutant.path, set())
        if mutant.in_function:  # run by no test that coverage knows of: perhaps by a process that was killed
            return [mirror, package]
        return [mirror, touching, package, self._importers(mutant.path)]

    def _callers_of(self, kernel: str) -> set[str]:
        """Tests that run a line of Python which mentions the kernel, or one that leads to it."""
        found: set[str] = set()
        for name in self._callers.leading_to(kernel):
            for file, line in self._callers.lines[name]:
                found |= set(self.baseline.lines.get(file, {}).get(line, []))
            direct = {file for file, words in self._test_words.items() if name in words}
            found |= {test for test in self.baseline.seconds if test.split("::")[0] in direct}
        return found

    def _mirror(self, path: str) -> set[str]:
        """Tests in tests/<package>/test_<module>.py."""
        file = Path("tests", *Path(path).parts[2:-1], f"test_{Path(path).stem}.py").as_posix()
        return {test for test in self.baseline.seconds if test.split("::")[0] == file}

    def _package(self, path: str) -> set[str]:
        """Tests below tests/<package>/."""
        folder = Path("tests", *Path(path).parts[2:-1]).as_posix() + "/"
        return {test for test in self.baseline.seconds if test.startswith(folder)}

    def _importers(self, path: str) -> set[str]:
        """Tests that run something of a file that imports this one."""
        module = ".".join(Path(path).with_suffix("").parts[1:]).removesuffix(".__init__")
        found: set[str] = set()
        for file, tree in self._trees.items():
            if module in _imports(tree):
                found |= self._tests_of_file.get(file, set())
        return found

    def _speed(self, test: str) -> tuple[int, str, float]:
        """By order of magnitude, and then by file, for fixtures of a module are made again after another module."""
        seconds = self.baseline.seconds[test]
        return math.floor(math.log10(max(seconds, 0.01))), test.split("::")[0], seconds


class _Callers:
    """Who mentions which compiled function."""

    def __init__(self) -> None:
        self.kernels: dict[str, set[str]] = defaultdict(set)
        """Kernels that mention a kernel."""
        self.lines: dict[str, set[tuple[str, int]]] = defaultdict(set)
        """Files and lines of Python that mention a kernel."""

    def leading_to(self, kernel: str) -> set[str]:
        """The kernel, and all kernels that call it directly or not."""
        found, new = {kernel}, {kernel}
        while new:
            new = {caller for name in new for caller in self.kernels[name]} - found
            found |= new
        return found


def _kernel_callers(trees: dict[str, ast.Module]) -> _Callers:
    kernels = {node.name: node for tree in trees.values() for node in ast.walk(tree) if is_kernel(node)}
    callers = _Callers()
    for file, tree in trees.items():
        inside: dict[int, str] = {}
        for node in ast.walk(tree):
            if is_kernel(node):
                inside |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node.name)
        for name, line in _global_names(tree):
            if name in kernels and line in inside:
                callers.kernels[name].add(inside[line])
            elif name in kernels:
                callers.lines[name].add((file, line))
    return callers


def _global_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions that a module defines or imports, also as `module.function`, wherever it mentions them."""
    known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            known |= {one.asname or one.name for one in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in known:
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            yield node.attr, node.lineno


def _run_at_import(tree: ast.Module) -> set[str]:
    """Functions of a module that may run when it is imported: mentioned outside functions, or by one that is."""
    functions: dict[str, ast.AST] = {}
    outside: set[str] = set()

    def walk(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                functions[child.name] = child
                for part in (*child.decorator_list, child.args):
                    outside.update(name for name, _ in mentioned_names(part))
            else:
                if isinstance(child, ast.Name):
                    outside.add(child.id)
                walk(child)

    walk(tree)
    found: set[str] = set()
    new = outside & functions.keys()
    while new:
        found |= new
        new = {name for one in new for name, _ in mentioned_names(functions[one])} & functions.keys() - found
    return found


def _imports(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found
