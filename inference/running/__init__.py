"""How work is run: many fits at once, threads, machine code, progress, when to stop.

Nothing here knows a model. Open `executor.py` for many fits (processes, Dask), `threads.py` for
chains in machine code, `machine_code.py` for kernels, `progress.py` for what a user sees,
`until.py` for chains that go on until they have converged.
"""
