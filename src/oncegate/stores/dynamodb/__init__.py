"""The ledger in a DynamoDB table: claims only, for programs that already keep their data there."""

from oncegate.stores.dynamodb.store import DynamoStore

__all__ = ["DynamoStore"]
