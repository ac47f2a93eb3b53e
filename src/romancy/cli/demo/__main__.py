"""`python -m romancy.cli.demo`: the same as `romancy demo`."""

from romancy.cli.demo import demo

if __name__ == "__main__":
    demo(prog_name="romancy demo")
