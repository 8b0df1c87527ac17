"""AWS Lambda behind SQS, EventBridge and API Gateway."""

import base64
import json
import os
from datetime import datetime, timedelta, timezone

import boto3
import urllib3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent, idempotent_function

logger = Logger()
metrics = Metrics()
http = urllib3.PoolManager()
ses = boto3.client("ses")
ddb = boto3.client("dynamodb")
layer = DynamoDBPersistenceLayer(table_name="idempotency")
config = IdempotencyConfig(event_key_jmespath="detail.order_id")
processor = BatchProcessor(event_type=EventType.SQS)


@idempotent(persistence_store=layer, config=config)
def order_placed(event, context):  # good: OG001
    http.request("POST", os.environ["ERP_URL"], body=json.dumps(event["detail"]))
    return {"statusCode": 200}


def order_cancelled(event, context):
    detail = event["detail"]
    http.request("POST", os.environ["ERP_URL"] + "/cancellations", body=json.dumps(detail))  # bad: OG001
    ses.send_email(  # bad: OG001
        Source="shop@example.com",
        Destination={"ToAddresses": [detail["email"]]},
        Message={"Subject": {"Data": "Cancelled"}, "Body": {"Text": {"Data": "Your order is cancelled."}}},
    )


@idempotent_function(data_keyword_argument="order", persistence_store=layer)
def book_pickup(order):
    http.request("POST", os.environ["CARRIER_URL"] + "/pickups", body=json.dumps(order))


def record_handler(record):
    book_pickup(order=json.loads(record.body))


def batch(event, context):  # good: OG001, OG008
    return process_partial_response(event=event, record_handler=record_handler, processor=processor, context=context)


def kinesis(event, context):
    for record in event["Records"]:
        payload = json.loads(base64.b64decode(record["kinesis"]["data"]))
        if not _first_time(payload["parcel_id"], payload["scan"]):
            metrics.add_metric(name="Duplicates", unit="Count", value=1)
            continue
        http.request("POST", os.environ["TRACKING_URL"], body=json.dumps(payload))


def _first_time(parcel_id, scan):
    expires = int((datetime.now(timezone.utc) + timedelta(days=30)).timestamp())
    try:
        ddb.put_item(
            TableName="scans",
            Item={"pk": {"S": f"{parcel_id}#{scan}"}, "expires_at": {"N": str(expires)}},
            ConditionExpression="attribute_not_exists(pk)",
        )
    except ddb.exceptions.ConditionalCheckFailedException:
        return False
    return True


def api(event, context):
    body = json.loads(event["body"])
    key = context.aws_request_id
    try:
        ddb.put_item(TableName="requests", Item={"pk": {"S": key}}, ConditionExpression="attribute_not_exists(pk)")  # bad: OG002
    except ddb.exceptions.ConditionalCheckFailedException:
        logger.info("duplicate")
        return {"statusCode": 409}
    http.request("POST", os.environ["ERP_URL"], body=json.dumps(body))
    return {"statusCode": 202}
