"""What workflow code must not do, and what to do instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    code: str
    does: str
    instead: str
    names: str
    """Dotted names; `x.*` means everything in x, and what its calls return."""


ACTIVITY = "move it into an activity"
RULES = (
    Rule(
        "clock",
        "reads the clock",
        "use ctx.now()",
        "time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns"
        " time.process_time time.process_time_ns time.gmtime time.localtime time.ctime time.asctime time.strftime"
        " datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today"
        " django.utils.timezone.now pendulum.now arrow.now arrow.utcnow",
    ),
    Rule("sleep", "blocks the worker and is lost in a crash", "use await sleep(ctx, ...)", "time.sleep"),
    Rule(
        "random",
        "is different on replay",
        "use ctx.random",
        "random.* numpy.random.* secrets.* os.urandom os.getrandom",
    ),
    Rule("random", "is different on replay", "use ctx.uuid4()", "uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7"),
    Rule(
        "io",
        "does I/O",
        ACTIVITY,
        "builtins.open builtins.input io.open requests.* httpx.* httpx2.* aiohttp.* urllib.request.* urllib3.*"
        " http.client.* socket.* smtplib.* ftplib.* subprocess.* sqlite3.* aiosqlite.* asyncpg.* psycopg.* psycopg2.*"
        " pymysql.* redis.* boto3.* aiofiles.* shutil.* tempfile.* glob.* asyncio.open_connection asyncio.start_server"
        " asyncio.create_subprocess_exec asyncio.create_subprocess_shell os.system os.popen os.open os.listdir"
        " os.scandir os.walk os.stat os.mkdir os.makedirs os.remove os.unlink os.rename os.replace os.rmdir"
        " os.path.exists os.path.isfile os.path.isdir os.path.getsize os.path.getmtime pathlib.Path.open"
        " pathlib.Path.read_text pathlib.Path.read_bytes pathlib.Path.write_text pathlib.Path.write_bytes"
        " pathlib.Path.exists pathlib.Path.is_file pathlib.Path.is_dir pathlib.Path.stat pathlib.Path.iterdir"
        " pathlib.Path.glob pathlib.Path.rglob pathlib.Path.mkdir pathlib.Path.unlink pathlib.Path.rename"
        " pathlib.Path.touch",
    ),
    Rule(
        "environment",
        "depends on the machine",
        "pass it as an argument or read it in an activity",
        "os.getenv os.environ os.environb os.getpid os.getcwd os.cpu_count os.uname platform.* getpass.* sys.argv"
        " pathlib.Path.cwd pathlib.Path.home",
    ),
    Rule(
        "thread",
        "leaves the workflow's event loop",
        ACTIVITY,
        "asyncio.to_thread asyncio.run asyncio.run_coroutine_threadsafe threading.* multiprocessing.*"
        " concurrent.futures.*",
    ),
)
KINDS = {
    "clock": ("Workflow code reads the clock.", "Use ctx.now()."),
    "sleep": ("Workflow code blocks its worker.", "Use await sleep(ctx, ...)."),
    "random": ("Workflow code uses values that differ on replay.", "Use ctx.random or ctx.uuid4()."),
    "io": ("Workflow code does I/O.", "Move it into an activity."),
    "environment": ("Workflow code depends on the machine.", "Pass it as an argument or read it in an activity."),
    "thread": ("Workflow code leaves its event loop.", "Move it into an activity."),
    "order": ("Workflow code depends on an order that differs on replay.", "Sort it, or await in a fixed order."),
    "global": ("Workflow code changes a global variable.", "Use a local variable, or store it in an activity."),
    "await": ("A call is never awaited, so it never runs.", "Await it."),
    "context": ("A call is made without the context, so it is not recorded.", "Pass ctx first."),
    "app": ("Workflow code calls the app.", "Use the function that takes ctx, or an activity."),
    "except": ("Workflow code swallows cancellation.", "Catch Exception, or raise it again."),
}
"""Every kind of problem: in general, and what to do instead. Those without a `Rule` are found by the reader."""

BY_NAME = {name: rule for rule in RULES for name in rule.names.split()}
HARMLESS_WITH = {
    "time.gmtime": 1,
    "time.localtime": 1,
    "time.ctime": 1,
    "time.asctime": 1,
    "time.strftime": 2,
    "random.Random": 1,
}
"""Calls that are harmless with this many arguments: a given time to format, a given seed."""

HARMLESS = ("Error", "Exception", "Timeout", "Warning", "URL", "Request", "Response")
"""Name endings of classes in I/O libraries that only hold data."""

ENVIRONMENT = {"os.environ", "os.environb", "sys.argv"}
"""Reported wherever they are used, not only where they are called."""

LOOP_METHODS = {"run_in_executor", "run_until_complete", "call_soon_threadsafe"}
APP_METHODS = {"start_workflow", "send_event", "cancel_workflow", "resume_workflow"}
AWAITED = {"ask", "emit", "sleep", "sleep_until", "wait_event", "send_event", "start_workflow", "step"}
PLAIN = {"compensate"}
"""What takes a context, and is not awaited."""
COROUTINES = {f"asyncio.{name}" for name in "sleep wait wait_for".split()}
ORDERED = {f"builtins.{name}" for name in "list tuple enumerate iter next map filter zip reversed".split()}
ORDER_FREE = {f"builtins.{name}" for name in "sorted set frozenset sum any all min max len".split()}
NEVER_AWAITS = {f"builtins.{name}" for name in "print str int float bool len repr dict".split()}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}


def rule_of(dotted: str) -> Rule | None:
    name = dotted.replace("()", "")
    if name in BY_NAME:
        return BY_NAME[name]
    parts = name.split(".")
    return next(
        (rule for n in range(1, len(parts)) if (rule := BY_NAME.get(".".join([*parts[:n], "*"])))),
        None,
    )


def is_ours(dotted: object, *names: str) -> bool:
    """Whether a name is one of these names of romancy. Unknown and re-exported names count too."""
    if not isinstance(dotted, str):
        return False
    root, _, name = dotted.partition(".")
    return root in ("romancy", "builtins", "") and name.rpartition(".")[2] in names
