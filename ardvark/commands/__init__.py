"""The command line: `ardvark list | fit | report | diagnose | compare | sbc | replicate | doctor`.

In: the words of a command. Out: text or JSON, stored trees, an exit code.
cli.py has the commands and `main`: open it first. checks.py: `sbc`, `diagnose`; studies.py:
`replicate`; tasks.py: what several commands do; board.py: how a run goes, on the
screen; kept.py: runs that go on after they were killed.
"""
