"""Drives `offshoot mcp` with the official SDK, 2026-07-28 generation, in each of its modes.

Usage: python generation_2026.py SERVER ARGS...   (prints OK at the end)
       python generation_2026.py URL
"""

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters


def text(result):
    return [block.text for block in result.content]


def server():
    if sys.argv[1].startswith("http"):
        return sys.argv[1]
    return StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))


async def use(mode, version):
    reports = []

    async def progress(done, total, message):
        reports.append(done)

    async with Client(server(), mode=mode) as client:
        assert client.protocol_version == version, (mode, client.protocol_version)
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert len(names) == 8, names
        result = await client.call_tool(
            "bash", {"command": "sleep 1.5; echo waited"}, progress_callback=progress
        )
        assert text(result)[0].startswith("waited\n"), result
        assert reports and reports == sorted(reports), reports
        result = await client.call_tool(
            "bash", {"command": "echo behind", "run_in_background": True}
        )
        assert text(result)[0].startswith("started background task bash-"), result
        said = text(result)[1:]
        while not any("behind" in line for line in said):
            said += text(await client.call_tool("task_list", {}))[1:]
        result = await client.call_tool(
            "subagent", {"description": "helper", "prompt": "Answer.", "run_in_background": False}
        )
        assert text(result)[0] == "CHILD ANSWER", result
        result = await client.call_tool("bash", {"command": 5})
        assert result.is_error, result
        await client.call_tool("bash", {"command": "sleep 1000", "run_in_background": True})


async def main():
    await use("auto", "2026-07-28")
    await use("2026-07-28", "2026-07-28")
    await use("legacy", "2025-11-25")
    print("OK")


asyncio.run(main())
