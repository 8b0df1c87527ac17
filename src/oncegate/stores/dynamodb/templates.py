"""The table as a template for tools that create it: CloudFormation (JSON) and Terraform.

The same definition as `table.py` gives to the service, with point-in-time recovery and protection against
deletion switched on: a lost ledger lets every event run again.
"""

from __future__ import annotations

import json
from typing import Final

from oncegate.stores.dynamodb.items import INDEX

FORMATS: Final = ("cloudformation", "terraform")


def template(table: str, form: str) -> str:
    """The table in one of `FORMATS`."""
    return terraform(table) if form == "terraform" else cloudformation(table)


def cloudformation(table: str) -> str:
    """A CloudFormation template, ready for `aws cloudformation deploy`."""
    properties = {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}],
        "AttributeDefinitions": [
            {"AttributeName": "k", "AttributeType": "B"},
            {"AttributeName": "o", "AttributeType": "N"},
            {"AttributeName": "r", "AttributeType": "N"},
        ],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": INDEX,
                "KeySchema": [
                    {"AttributeName": "o", "KeyType": "HASH"},
                    {"AttributeName": "r", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        "TimeToLiveSpecification": {"AttributeName": "x", "Enabled": True},
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "DeletionProtectionEnabled": True,
    }
    resource = {
        "Type": "AWS::DynamoDB::Table",
        "DeletionPolicy": "Retain",
        "UpdateReplacePolicy": "Retain",
        "Properties": properties,
    }
    document = {"AWSTemplateFormatVersion": "2010-09-09", "Resources": {"OncegateLedger": resource}}
    return json.dumps(document, indent=2)


def terraform(table: str) -> str:
    """A Terraform resource."""
    return _TERRAFORM.replace("TABLE", json.dumps(table)).replace("INDEX", json.dumps(INDEX))


_TERRAFORM: Final = """\
resource "aws_dynamodb_table" "oncegate_ledger" {
  name                        = TABLE
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "k"
  deletion_protection_enabled = true

  attribute {
    name = "k"
    type = "B"
  }

  attribute {
    name = "o"
    type = "N"
  }

  attribute {
    name = "r"
    type = "N"
  }

  global_secondary_index {
    name            = INDEX
    hash_key        = "o"
    range_key       = "r"
    projection_type = "KEYS_ONLY"
  }

  ttl {
    attribute_name = "x"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  lifecycle {
    prevent_destroy = true
  }
}"""
