"""Each tool is already what OpenAI's own SDK makes of a schema for strict mode."""

import copy
import json
import pathlib
import sys

from openai.lib._pydantic import _ensure_strict_json_schema
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter


def strict(schema):
    own = copy.deepcopy(schema)
    return _ensure_strict_json_schema(own, path=(), root=own)


folder = pathlib.Path(sys.argv[1])
seen = 0
for file in sorted((folder / "openai-strict").glob("*.json")):
    tool = json.loads(file.read_text())
    TypeAdapter(FunctionToolParam).validate_python(tool, strict=True)
    assert set(tool) <= set(FunctionToolParam.__annotations__), (file.name, set(tool))
    assert tool["type"] == "function" and tool["strict"] is True, file.name
    assert strict(tool["parameters"]) == tool["parameters"], file.name
    seen += 1

# The same check finds what is not strict.
loose = json.loads((folder / "mcp" / "bash.json").read_text())["inputSchema"]
assert strict(loose) != loose
print(seen)
