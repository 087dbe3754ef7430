"""Each declaration is one of Google's own SDK, which loses and warns of nothing in it."""

import json
import pathlib
import sys
import warnings

from google.genai import types
from pydantic import ValidationError

warnings.simplefilter("error", UserWarning)


def names(value):
    """The same with keys and types as the SDK writes them."""
    if isinstance(value, dict):
        return {
            key: (item.upper() if key == "type" and isinstance(item, str) else names(item))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [names(item) for item in value]
    return value


def check(declaration):
    parsed = types.FunctionDeclaration.model_validate(declaration)
    written = parsed.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert names(written) == names(declaration), (written, declaration)
    assert "additionalProperties" not in json.dumps(declaration)
    if parsed.parameters is not None:
        assert parsed.parameters.properties, "an object has properties"


folder = pathlib.Path(sys.argv[1])
seen = 0
for file in sorted((folder / "gemini").glob("*.json")):
    check(json.loads(file.read_text()))
    seen += 1

# The same check finds what the subset does not have.
strict = json.loads((folder / "openai-strict" / "bash.json").read_text())
for parameters in [strict["parameters"], {"type": "object", "$schema": "x"}, {"type": "object"}]:
    try:
        check({"name": "x", "parameters": parameters})
    except (ValidationError, AssertionError, AttributeError):
        continue
    raise AssertionError(parameters)
print(seen)
