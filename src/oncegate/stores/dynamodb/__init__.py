"""The ledger in a DynamoDB table: claims and open entries, for programs that keep their data there."""

from oncegate.stores.dynamodb.store import DynamoStore

__all__ = ["DynamoStore"]
