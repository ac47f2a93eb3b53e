"""What every test may use; the fixtures of a folder live in its own conftest."""
