"""Where a source file can be mutated, and how: found in its syntax tree, applied to its exact bytes."""

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

EXCLUDED_FILES = ("figures.py", "render.py", "html.py")
"""Presentation: what these draw is looked at, not asserted."""

KERNEL_DECORATORS = {"kernel", "njit", "jit", "vectorize", "guvectorize", "intrinsic", "overload"}
"""A function under one of these is compiled by numba, and coverage never sees its lines."""

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
EXTREMES = {
    one: other
    for pair in (("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"))
    for one, other in (pair, pair[::-1])
}
TEXT_METHODS = {"__str__", "__repr__", "__format__"}
MESSAGES = {"print", "warn", "debug", "info", "warning", "exception"}
"""Calls that only tell the user something."""


@dataclass(frozen=True)
class Mutant:
    """One change of one source file."""

    path: str
    """Relative to the checkout, with forward slashes."""
    start: int
    """First byte that is replaced."""
    end: int
    replacement: str
    operator: str
    """Kind of change, e.g. "comparison"."""
    line: int
    statement: tuple[int, int]
    """First and last line of the statement; coverage may report any of them. Of a compound statement, its header; of an
    argument's default, the function's body."""
    function: str
    """Qualified name of the function or class around it; "" at the top level of the module."""
    in_function: bool
    """Without effect until a function is called, and so not when the module is imported."""
    kernel: str
    """Name of the compiled function around it, or ""."""
    original: str
    """The changed lines before, on one line and without surrounding space."""
    mutated: str
    """The changed lines after."""

    @property
    def id(self) -> str:
        """Unique within one revision of the sources."""
        return f"{self.path}:{self.line}:{self.start}-{self.end}:{self.replacement}"

    def apply(self, source: bytes) -> bytes:
        """The mutated source: all bytes but the replaced ones stay as they are."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]


def find_mutants(root: Path, packages: list[str]) -> tuple[list[Mutant], list[str]]:
    """All mutants of the package under root/src, in the order of the files, and the files that were excluded.

    Args:
        root: The checkout.
        packages: Subpackages (or modules, without .py) to mutate; all of them when empty.
    """
    source = package_folder(root)
    known = {
        path.stem for path in source.iterdir() if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))
    }
    if unknown := set(packages) - known:
        raise SystemExit(f"--packages must be among {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")
    found, excluded = [], []
    for path in sorted(source.rglob("*.py")):
        if packages and Path(path.relative_to(source).parts[0]).stem not in packages:
            continue
        relative = path.relative_to(root).as_posix()
        if path.name in EXCLUDED_FILES:
            excluded.append(relative)
        else:
            found.extend(mutants_of(relative, path.read_bytes()))
    return found, excluded


def package_folder(root: Path) -> Path:
    """The folder of the one package under root/src."""
    packages = [path.parent for path in (root / "src").glob("*/__init__.py")]
    if len(packages) != 1:
        raise SystemExit(f"{root / 'src'} must hold exactly one package, found {len(packages)}")
    return packages[0]


def draw(root: Path, mutants: list[Mutant], size: int, seed: int) -> list[Mutant]:
    """A random sample without replacement; a larger one with the same seed begins with the smaller one."""
    shuffled = random.Random(seed).sample(mutants, len(mutants))
    drawn: list[Mutant] = []
    for mutant in shuffled:
        if len(drawn) == size:
            break
        if _is_python(mutant.apply((root / mutant.path).read_bytes())):
            drawn.append(mutant)
    return drawn


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """The mutants of one file, in its order."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda mutant: (mutant.start, mutant.end, mutant.replacement))


def is_kernel(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    """Whether numba compiles the function."""
    return isinstance(node, ast.FunctionDef) and any(_name(one) in KERNEL_DECORATORS for one in node.decorator_list)


class _Finder(ast.NodeVisitor):
    """Walks over what may be mutated, and nothing else."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.found: list[Mutant] = []
        self._line_starts = [0, *(match.end() for match in re.finditer(rb"\n", source))]
        self._scope: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = []
        self._statement = (1, 1)

    # What is left out.

    def visit(self, node: ast.AST) -> None:
        """Keep track of the statement, and leave out what no test should check."""
        if isinstance(node, ast.stmt):
            if self._left_out(node):
                return
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            before, self._statement = self._statement, (node.lineno, last)
            super().visit(node)
            self._statement = before
        elif not isinstance(node, ast.JoinedStr):  # text; and Python 3.11 gives wrong offsets inside
            super().visit(node)

    def _left_out(self, node: ast.stmt) -> bool:
        line = self.source[self._line_starts[node.lineno - 1] :].split(b"\n", 1)[0]
        if b"pragma: no cover" in line:
            return True
        match node:
            case ast.Raise() | ast.Assert() | ast.Import() | ast.ImportFrom():
                return True
            case ast.FunctionDef(name=name):
                return name in TEXT_METHODS
            case ast.If(test=test):
                return _name(test) == "TYPE_CHECKING" or ast.unparse(test).startswith("__name__ ==")
            case ast.Assign(targets=[ast.Name(id=name)]):
                return name.startswith("__") and name.endswith("__")
            case ast.Expr(value=ast.Call(func=function)):
                return _name(function) in MESSAGES
        return False

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Decorators and annotations are left out. A default matters to those who run the body."""
        before, self._statement = self._statement, (node.body[0].lineno, node.end_lineno or node.lineno)
        self._scope.append(node)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._scope.pop()
        self._statement = before
        self._inside(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Bases and decorators are left out."""
        self._inside(node)

    def _inside(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._scope.append(node)
        for child in node.body:
            self.visit(child)
        self._scope.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Without the annotation."""
        if node.value is not None:
            self.visit(node.value)

    # What is mutated.

    def visit_Compare(self, node: ast.Compare) -> None:
        """`<` to `<=`, `==` to `!=`, and so on."""
        operands = [node.left, *node.comparators]
        for left, right, operation in zip(operands, operands[1:], node.ops, strict=False):
            self._swap_between(left, right, *COMPARISONS[type(operation)], "comparison")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """`+` to `-`, `*` to `/`, and so on, but not of text and lists, where every change is an error at once."""
        if type(node.op) in ARITHMETIC and not (_is_sequence(node.left) or _is_sequence(node.right)):
            self._swap_between(node.left, node.right, *ARITHMETIC[type(node.op)], "arithmetic")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """`and` to `or`, and back."""
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._swap_between(left, right, *words, "boolean")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """`not x` to `x`."""
        if isinstance(node.op, ast.Not):
            start = self._start(node)
            if word := re.match(rb"not\s*", self.source[start:]):
                self._add(start, start + word.end(), "", "not")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """`a if c else b` to `b if c else a`."""
        body, orelse = self._text(node.body), self._text(node.orelse)
        between = self.source[self._end(node.body) : self._start(node.orelse)].decode()
        self._add(self._start(node.body), self._end(node.orelse), orelse + between + body, "conditional")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """`n` to `n + 1`, `True` to `False`; text stays."""
        value = node.value
        if isinstance(value, bool):
            self._replace(node, str(not value), "constant")
        elif isinstance(value, int | float) and value + 1 != value:
            self._replace(node, repr(value + 1), "constant")

    def visit_Break(self, node: ast.Break) -> None:
        """To `continue`."""
        self._replace(node, "continue", "loop")

    def visit_Continue(self, node: ast.Continue) -> None:
        """To `break`."""
        self._replace(node, "break", "loop")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """`x += y` to nothing, and to `x -= y`."""
        self._replace(node, "pass", "statement")
        if type(node.op) in ARITHMETIC and not _is_sequence(node.value):
            old, new = ARITHMETIC[type(node.op)]
            self._swap_between(node.target, node.value, f"{old}=", f"{new}=", "arithmetic")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call for its effect to nothing."""
        if isinstance(node.value, ast.Call):
            self._replace(node, "pass", "statement")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """`min` to `max`, and back."""
        name = _name(node.func)
        if name in EXTREMES:
            end = self._end(node.func)
            self._add(end - len(name), end, EXTREMES[name], "extreme")
        self.generic_visit(node)

    # Offsets.

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._line_starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._line_starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        return self.source[self._start(node) : self._end(node)].decode()

    def _replace(self, node: ast.expr | ast.stmt, replacement: str, operator: str) -> None:
        self._add(self._start(node), self._end(node), replacement, operator)

    def _swap_between(self, left: ast.expr, right: ast.expr, old: str, new: str, operator: str) -> None:
        """Replace the operator that stands between two operands, and parentheses and spaces."""
        first, last = self._end(left), self._start(right)
        gap = self.source[first:last]
        pattern = rb"\s+".join(re.escape(word.encode()) for word in old.split())
        match = re.search(pattern, gap)
        if match and b"#" not in gap:
            self._add(first + match.start(), first + match.end(), new, operator)

    def _add(self, start: int, end: int, replacement: str, operator: str) -> None:
        mutated = self.source[:start] + replacement.encode() + self.source[end:]
        line = self.source.count(b"\n", 0, start)
        first = self._line_starts[line]
        last = self.source.find(b"\n", end) % (len(self.source) + 1)  # the end of the file where no line follows
        functions = [one for one in self._scope if not isinstance(one, ast.ClassDef)]
        self.found.append(
            Mutant(
                path=self.path,
                start=start,
                end=end,
                replacement=replacement,
                operator=operator,
                line=line + 1,
                statement=self._statement,
                function=".".join(one.name for one in self._scope),
                in_function=bool(functions),
                kernel=next((one.name for one in functions if is_kernel(one)), ""),
                original=_one_line(self.source[first:last]),
                mutated=_one_line(mutated[first : last + len(mutated) - len(self.source)]),
            )
        )


def mentioned_names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that is mentioned below a node, with its line."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name | ast.Attribute):
            yield _name(child), child.lineno


def _is_python(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _name(node: ast.AST) -> str:
    """The last part of a dotted name, of what is called if it is a call."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_sequence(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp)


def _one_line(text: bytes) -> str:
    return " ".join(text.decode().split())
