"""Workflows as tools for AI agents, over the Model Context Protocol (MCP).

>>> from romancy.contrib.mcp import tools
>>> mcp = tools(app, [order, refund])  # an ASGI application: serve it, or mount it

It needs `pip install "romancy[mcp]"`. `romancy mcp shop:app` serves the workflows that are marked with `@tool`.

offers.py          which workflows are tools: their names, descriptions and arguments; `@tool`
workflow_tools.py  the server with one tool per workflow
calls.py           a call starts a workflow, and waits for its end for a while
results.py         what a client is told: a result, an error, or that it is still running
tasks.py           the tasks extension: a call that takes longer is a task, whose id is that of the instance
people.py          questions to people, as input that a task requires
operator_tools.py  the read-only server for operators: list, show, why, replay
arguments.py       the arguments of our own tools
bounded.py         answers that are cut to a size that models can take
deadline.py        code that may never end, run for a limited time
endpoint.py        a server as an ASGI application: access, limits, the lifespan
stdio.py           a server over standard input and output
command.py         `romancy mcp`
"""

try:
    import mcp as _mcp
except ModuleNotFoundError as error:
    raise ModuleNotFoundError('romancy.contrib.mcp needs the package "mcp": pip install "romancy[mcp]"') from error

from romancy.contrib.mcp.endpoint import MCPApp
from romancy.contrib.mcp.offers import tool
from romancy.contrib.mcp.operator_tools import operations
from romancy.contrib.mcp.workflow_tools import tools

del _mcp
__all__ = ["MCPApp", "operations", "tool", "tools"]
