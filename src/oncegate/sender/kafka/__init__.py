"""Kafka as a destination: events become records of a topic.

records    an event as a record: key, headers, value
producers  the client: one idempotent producer for each cluster and way to sign in
courier    one attempt, and what its delivery report means
"""
