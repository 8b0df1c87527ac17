"""The Monday storm: the demo's story, told once without the gate and once with it.

Start reading at `run.py`. `story.py` says what happens, `handlers.py` holds the two booking systems that it
happens to, `evidence.py` counts what is left afterwards.
"""
