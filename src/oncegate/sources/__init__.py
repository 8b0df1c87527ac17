"""Queues in: consumers that run each message's effect once and acknowledge it when it is on record.

contract   what a queue must offer: Source, Delivery, Traits
consumer   one engine for all queues: receives, admits, acknowledges, gives back, extends, drains
"""
