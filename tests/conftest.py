"""What every test may use; the fixtures of a folder live in its own conftest."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background with SIGINT ignored, and every process the tests start would inherit
    # that: commands that are to end with Ctrl-C would not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
