"""What runs in a simulated container? A small shell of our own: its language, its files and its commands.

`syntax` reads scripts, `language` runs them, `commands` and `tests` are what they can call, `files` is what they see,
and `process` runs one against a clock. Nothing here starts a process or touches a file of this machine.
"""
