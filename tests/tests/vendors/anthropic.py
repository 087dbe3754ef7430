"""Each tool has the parts, and the types of parts, of Anthropic's own SDK."""

import json
import pathlib
import sys

from anthropic.types import ToolParam
from anthropic.types.tool_param import InputSchemaTyped
from pydantic import TypeAdapter, ValidationError

whole = TypeAdapter(ToolParam)
schema = TypeAdapter(InputSchemaTyped)


def check(tool):
    whole.validate_python(tool, strict=True)
    schema.validate_python(tool["input_schema"], strict=True)
    assert set(tool) <= set(ToolParam.__annotations__), set(tool)


folder = pathlib.Path(sys.argv[1])
seen = 0
for file in sorted((folder / "anthropic").glob("*.json")):
    check(json.loads(file.read_text()))
    seen += 1

# The same check finds another vendor's form, and a schema that is no object's.
for wrong in [
    json.loads((folder / "mcp" / "bash.json").read_text()),
    {"name": "x", "input_schema": {"type": "string"}},
]:
    try:
        check(wrong)
    except (ValidationError, KeyError):
        continue
    raise AssertionError(wrong)
print(seen)
