"""What does `python -c` do here? One-liners: print, arithmetic, os.environ, time.sleep, sys.exit, loops and conditions.

No Python of the image runs; whatever else a program needs is refused by name. Nothing is ever passed to this machine's
own interpreter: the tree of the text is walked.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Generator
from typing import Any

from dragoman.kubelet.shell.language import ProgramCall
from dragoman.kubelet.shell.process import TURN, ThreadWork, Until

VERSION = "Python 3.11 (simulated by Dragoman)"
MODULES = ("os", "sys", "time", "socket")
_LARGEST = 10**6
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len, "str": str, "int": int, "float": float, "sum": sum, "min": min, "max": max, "sorted": sorted,
    "list": list, "bool": bool, "abs": abs, "round": round,
}  # fmt: skip
_METHODS = (
    "upper",
    "lower",
    "strip",
    "split",
    "join",
    "get",
    "items",
    "keys",
    "values",
    "startswith",
    "endswith",
    "format",
)
_Steps = Generator[Any, None, Any]


class _Refused(Exception):
    pass


class _Exit(Exception):
    pass


def run(call: ProgramCall) -> int | ThreadWork:
    """python [-u] -c TEXT, python --version."""
    words = [word for word in call.args[1:] if word not in ("-u", "-B", "-E", "-I")]
    if words[:1] in (["--version"], ["-V"]):
        call.say(f"{VERSION}\n")
        return 0
    if len(words) < 2 or words[0] != "-c":
        what = f"{words[0]}: " if words else ""
        from dragoman.kubelet.shell.commands import REMEDY

        return call.fail(f"{what}only `{call.args[0]} -c` with plain statements is simulated ({REMEDY})", 127)
    try:
        tree = ast.parse(words[1])
    except (SyntaxError, ValueError, RecursionError) as error:
        return call.fail(f"SyntaxError: {error}")
    return _Script(call).main(tree)


class _Script:
    def __init__(self, call: ProgramCall) -> None:
        self.call = call
        self.names: dict[str, Any] = {}
        self.modules: dict[str, str] = {}

    def main(self, tree: ast.Module) -> ThreadWork:
        try:
            yield from self.block(tree.body)
        except _Exit as exit_:
            code = exit_.args[0]
            if code is None or isinstance(code, int):
                return int(code or 0) % 256
            return self.call.fail(str(code))
        except _Refused as refused:
            return self.call.fail(str(refused), 127)
        except RecursionError:
            return self.call.fail("nested too deep")
        except Exception as error:  # what the one-liner itself does wrong
            self.call.errors.write(f"{type(error).__name__}: {error}\n".encode())
            return 1
        return 0

    def block(self, body: list[ast.stmt]) -> _Steps:
        for statement in body:
            yield TURN
            match statement:
                case ast.Import(names):
                    for alias in names:
                        self.module(alias.name, alias.asname or alias.name)
                case ast.ImportFrom(module=module, names=names):
                    self.module(module or "", module or "")
                    for alias in names:
                        self.modules[alias.asname or alias.name] = f"{module}.{alias.name}"
                case ast.Expr(value):
                    yield from self.value(value)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.names[name] = yield from self.value(value)
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    self.names[name] = self.operate(op, self.names.get(name, 0), (yield from self.value(value)))
                case ast.If(test, body_, orelse):
                    yield from self.block(body_ if (yield from self.value(test)) else orelse)
                case ast.For(target=ast.Name(id=name), iter=values, body=body_):
                    for item in (yield from self.value(values)):
                        self.names[name] = item
                        yield from self.block(body_)
                case ast.While(test, body_):
                    while (yield from self.value(test)):
                        yield from self.block(body_)
                case ast.Assert(test, message):
                    if not (yield from self.value(test)):
                        text = (yield from self.value(message)) if message else ""
                        raise AssertionError(text)
                case ast.Pass():
                    pass
                case _:
                    raise _Refused(f"{type(statement).__name__} statements are not simulated")

    def module(self, name: str, alias: str) -> None:
        if name.split(".")[0] not in MODULES:
            raise _Refused(f"module {name} is not simulated (there are: {', '.join(MODULES)})")
        self.modules[alias] = name

    def value(self, node: ast.expr) -> _Steps:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(id=name):
                if name not in self.names:
                    raise NameError(f"name '{name}' is not defined")
                return self.names[name]
            case ast.JoinedStr(values):
                texts = []
                for part in values:
                    texts.append(str((yield from self.value(part))))  # noqa: PERF401
                return "".join(texts)
            case ast.FormattedValue(value, format_spec=spec):
                shown = yield from self.value(value)
                return format(shown, (yield from self.value(spec))) if spec else shown
            case ast.List(elts) | ast.Tuple(elts):
                items = []
                for part in elts:
                    items.append((yield from self.value(part)))  # noqa: PERF401
                return items if isinstance(node, ast.List) else tuple(items)
            case ast.BinOp(left, op, right):
                return self.operate(op, (yield from self.value(left)), (yield from self.value(right)))
            case ast.UnaryOp(op, operand):
                found = yield from self.value(operand)
                return not found if isinstance(op, ast.Not) else -found
            case ast.BoolOp(op, values):
                found = None
                for part in values:
                    found = yield from self.value(part)
                    if bool(found) == isinstance(op, ast.Or):
                        break
                return found
            case ast.Compare(left, ops, comparators):
                a = yield from self.value(left)
                for op_, right in zip(ops, comparators, strict=True):
                    b = yield from self.value(right)
                    if not self.operate(op_, a, b):
                        return False
                    a = b
                return True
            case ast.IfExp(test, body, orelse):
                return (yield from self.value(body if (yield from self.value(test)) else orelse))
            case ast.Subscript(value, index):
                return (yield from self.value(value))[(yield from self.value(index))]
            case ast.Attribute():
                return self.attribute(self.dotted(node))
            case ast.Call(func, args, keywords):
                return (yield from self.called(func, args, keywords))
        raise _Refused(f"{type(node).__name__} expressions are not simulated")

    def operate(self, op: Any, a: Any, b: Any) -> Any:
        function = _OPERATORS.get(type(op))
        if function is None:
            raise _Refused(f"operator {type(op).__name__} is not simulated")
        if isinstance(op, ast.Mult) and any(
            isinstance(x, str | list) and isinstance(y, int) and len(x) * y > _LARGEST for x, y in ((a, b), (b, a))
        ):
            raise MemoryError("larger than a simulated container")
        if (
            isinstance(op, ast.Mult)
            and isinstance(a, int)
            and isinstance(b, int)
            and a.bit_length() + b.bit_length() > 4096
        ):
            raise OverflowError("larger than 4096 bits")
        return function(a, b)

    def dotted(self, node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            above = self.dotted(node.value)
            return f"{above}.{node.attr}" if above else ""
        return self.modules.get(node.id, node.id) if isinstance(node, ast.Name) else ""

    def attribute(self, name: str) -> Any:
        if name == "os.environ":
            return dict(self.call.env)
        if name == "sys.version":
            return VERSION
        raise _Refused(f"{name or 'this attribute'} is not simulated")

    def called(self, func: ast.expr, args: list[ast.expr], keywords: list[ast.keyword]) -> _Steps:
        name = self.dotted(func)
        if (isinstance(func, ast.Attribute) and name.split(".")[0] not in self.modules.values()) or name.startswith(
            "os.environ."
        ):
            assert isinstance(func, ast.Attribute)
            if func.attr not in _METHODS:
                raise _Refused(f"method {func.attr} is not simulated")
            target = yield from self.value(func.value)
            return getattr(target, func.attr)(*(yield from self.values(args)))
        values = yield from self.values(args)
        named = {}
        for keyword in keywords:
            named[keyword.arg] = yield from self.value(keyword.value)
        match name:
            case "print":
                text = str(named.get("sep", " ")).join(str(value) for value in values)
                self.call.say(text + str(named.get("end", "\n")))
                return None
            case "range":
                span = range(*values)
                if len(span) > _LARGEST:
                    raise _Refused(f"more than {_LARGEST} steps are not simulated")
                return span
            case "time.sleep":
                yield Until(self.call.around.process.now + float(values[0]))
                return None
            case "time.time":
                return self.call.around.process.now
            case "sys.exit" | "exit" | "quit":
                raise _Exit(values[0] if values else None)
            case "os.getenv":
                return self.call.env.get(*values)
            case "os.listdir":
                return self.call.around.files.names(self.call.path(values[0] if values else "."))
            case "os.path.exists":
                return self.call.around.files.find(self.call.path(values[0])) is not None
            case "os.getpid":
                return 1
            case "socket.gethostname":
                return self.call.around.hostname
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*values)
        raise _Refused(f"{name or 'this call'}() is not simulated")

    def values(self, args: list[ast.expr]) -> _Steps:
        found = []
        for argument in args:
            found.append((yield from self.value(argument)))  # noqa: PERF401
        return found
