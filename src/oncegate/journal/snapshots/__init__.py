"""Snapshots: what the system believes, every 15 minutes, signed and chained, in write-once storage (E8).

    beliefs    users' functions that give objects with an id
    spool      sorts objects into parts on disk, with bounded memory
    vault      write-once storage: a folder (`folder.py`) or an S3 bucket with Object Lock (`s3.py`)
    manifest   what one snapshot holds: counts, hashes, clocks, the hash of the one before; signed
    taking     takes one: parts first, the manifest last
    archive    reads, compares and verifies what is stored
    suspicion  which snapshot looks wrong first

A snapshot without a manifest does not exist: a crash leaves parts that the next snapshot uses again.
"""
