"""Outside calls by library: what leaves the process and acts there.

Reading is no effect. PUT and DELETE are idempotent by HTTP's own rules and are no effects here.
"""

from __future__ import annotations

import ast
import re
from typing import Final

from msgspec import Struct

from oncegate.audit.flow.calls import CallInfo, text_of
from oncegate.audit.tables.keys import api_by_url

HTTP_PACKAGES: Final = frozenset({"requests", "httpx", "aiohttp", "urllib3", "niquests", "requests_toolbelt", "treq",
                                  "curl_cffi", "authlib", "requests_oauthlib", "aiohttp_retry"})  # fmt: skip
_HTTP_RECEIVER: Final = re.compile(r"^(.*_)?(client|session|http|requests|httpx|sess|api|pool|httpclient)$")
_HARMLESS_URL: Final = re.compile(
    r"(oauth2?/|/?tokens?$|/search$|/query$|/graphql$|/login$|/validate$|/verify$|/lookup$|/quotes?$"
    r"|/estimate$|/introspect$"
    r"|/token\b)", re.IGNORECASE
)  # fmt: skip
_READ: Final = re.compile(
    r"^(get|list|find|describe|check|search|fetch|read|lookup|validate|query|health|status|watch"
    r"|verify)",
    re.IGNORECASE,
)
STRONG: Final = re.compile(
    r"^(charge|refund|capture|payout|pay|transfer|book|purchase|order_label|buy|place_order|submit_order"
    r"|claim_\w+"
    r"|book_\w+|charge_\w+|refund_\w+|capture_\w+|reserve_(slot|seat|room|table|stock|inventory|capacity"
    r"|container)\w*"
    r"|create_(payment|charge|booking|shipment|order|invoice|payout|refund|transfer|label|subscription"
    r"|ticket)\w*"
    r"|send_(email|mail|sms|message|notification|push|invoice|payment|money|receipt|confirmation)\w*"
    r"|ship|ship_\w+"
    r"|print_label|issue_(refund|card|ticket|voucher|credit)\w*|post_message|debit|credit|withdraw"
    r"|disburse\w*)$"
)
_CLIENT: Final = re.compile(
    r"(client|api|gateway|sdk|provider|psp|acquirer|carrier|mailer|notifier|sms|bank|payments?|processor)$"
)


class Outside(Struct, frozen=True):
    """An outside call: its library, and the API that would take a key."""

    library: str
    takes_key: str = ""
    by_name: bool = False
    deduplicates: bool = False


def effect_of(call: CallInfo) -> Outside | None:
    """What a call does outside the process, or None."""
    for judge in (_http, _payments, _mail, _chat, _aws, _publish, _grpc, _named):
        found = judge(call)
        if found is not None:
            return found
    return None


def _http(call: CallInfo) -> Outside | None:
    method, position = call.method, 0
    is_known = call.package in HTTP_PACKAGES
    if call.full.startswith("urllib.request.urlopen") or call.full == "urlopen":
        return _urlopen(call)
    if call.full.startswith("http.client.") and method == "request":
        return Outside("HTTP") if call.literal(0, "method").upper() in ("POST", "PATCH") else None
    if method == "request" and (is_known or _HTTP_RECEIVER.match(call.receiver_name)):
        method, position = call.literal(0, "method").lower(), 1
    if method not in ("post", "patch"):
        return None
    url = call.literal(position, "url")
    if not is_known:
        has_body = call.keyword("json", "data", "content", "files", "body", "headers") is not None
        looks_http = url.startswith(("http", "/")) or has_body
        if (
            call.has_project_owner
            or call.package
            or not (_HTTP_RECEIVER.match(call.receiver_name) and looks_http)
        ):
            return None
    if _HARMLESS_URL.search(url.split("?")[0]):
        return None
    return Outside("HTTP", api_by_url(url))


def is_idempotent_call(call: CallInfo) -> bool:
    """Whether a call acts by PUT or DELETE: safe to repeat, but work that an acknowledgement waits for."""
    method = call.method
    if method == "request":
        method = call.literal(0, "method").lower()
    if method not in ("put", "delete") or call.has_project_owner:
        return False
    has_url = call.literal(0, "url").startswith(("http", "/"))
    return call.package in HTTP_PACKAGES or (
        not call.package and bool(_HTTP_RECEIVER.match(call.receiver_name)) and has_url
    )


def _urlopen(call: CallInfo) -> Outside | None:
    from oncegate.audit.flow.calls import bound_value

    given = call.argument(0, "url")
    if isinstance(given, ast.Name):
        value = bound_value(given, call.scope)
        given = value[0] if value else given
    if not isinstance(given, ast.Call):
        return Outside("HTTP") if call.argument(1, "data") is not None else None
    inner = CallInfo(given, call.scope)
    has_data = inner.argument(1, "data") is not None or call.argument(1, "data") is not None
    verb = inner.literal(9, "method").upper() or ("POST" if has_data else "GET")
    return Outside("HTTP", api_by_url(inner.literal(0, "url"))) if verb in ("POST", "PATCH") else None


_STRIPE_ACTS: Final = frozenset({"create", "capture", "confirm", "create_async", "capture_async", "confirm_async", "pay",
                                 "create_reversal", "finalize_invoice", "send_invoice"})  # fmt: skip


def _payments(call: CallInfo) -> Outside | None:
    full = call.full
    if call.package == "stripe" and call.method in _STRIPE_ACTS:
        harmless = (
            "Token." in full or "billing_portal" in full or "EphemeralKey" in full or "Webhook" in full
        )
        return None if harmless else Outside("Stripe", "Stripe")
    if call.package in ("square", "squareup") and re.match(
        r"create|complete|capture|refund|pay", call.method
    ):
        return Outside("Square", "Square")
    if call.package == "Adyen" or full.startswith("adyen."):
        acts = re.match(r"payments|refund|capture|payout|payment_links", call.method)
        return Outside("Adyen", "Adyen") if acts else None
    if call.package == "mollie" and call.method == "create":
        return Outside("Mollie", "Mollie")
    if call.package == "braintree" and call.method in (
        "sale",
        "refund",
        "submit_for_settlement",
        "create",
        "credit",
    ):
        return Outside("Braintree")
    if call.package in ("razorpay", "paypalrestsdk", "gocardless_pro", "plaid", "dwollav2") and re.match(
        r"create|refund|capture|transfer", call.method
    ):
        return Outside(call.package, "GoCardless" if call.package == "gocardless_pro" else "")
    if call.receiver.endswith("transaction") and call.method == "sale":
        return Outside("Braintree")
    return None


_MAIL_CALLS: Final = frozenset(
    {
        "django.core.mail.send_mail", "django.core.mail.send_mass_mail", "django.core.mail.mail_admins", "aiosmtplib.send",
        "resend.Emails.send", "firebase_admin.messaging.send", "onesignal.send", "django.core.mail.mail_managers",
    }
)  # fmt: skip


def _mail(call: CallInfo) -> Outside | None:
    if call.full in _MAIL_CALLS:
        return Outside("mail", "Resend" if call.package == "resend" else "")
    if call.package in ("smtplib", "aiosmtplib") and call.method in ("send_message", "sendmail"):
        return Outside("SMTP")
    if call.method == "sendmail" and not call.has_project_owner:
        return Outside("SMTP")
    if call.method == "send_message" and call.receiver_name in ("smtp", "server", "mailer", "mail_server"):
        return Outside("SMTP")
    if call.package in (
        "sendgrid",
        "postmarker",
        "mailjet_rest",
        "mailchimp_transactional",
        "python_http_client",
    ):
        return Outside(call.package) if call.method in ("send", "post", "create") else None
    if call.full.startswith("django.core.mail.") and call.method == "send":
        return Outside("mail")
    if call.package in ("flask_mail", "fastapi_mail") and call.method in ("send", "send_message"):
        return Outside("mail")
    if call.receiver_name in ("sg", "sendgrid", "sendgrid_client") and call.method == "send":
        return Outside("sendgrid")
    return None


def _chat(call: CallInfo) -> Outside | None:
    if call.method in ("chat_postMessage", "chat_postEphemeral", "files_upload_v2", "chat_scheduleMessage"):
        return Outside("Slack")
    if call.package in ("slack_sdk", "slack") and call.method in ("send", "send_dict"):
        return Outside("Slack")
    owner = call.receiver.rsplit(".", 1)[-1]
    if call.method in ("create", "create_async") and owner in ("messages", "calls", "verifications"):
        is_twilio = call.package == "twilio" or (
            call.keyword("to") is not None
            and call.keyword("from_", "body", "messaging_service_sid", "twiml") is not None
        )
        return Outside("Twilio") if is_twilio else None
    if call.package in ("vonage", "messagebird", "telegram", "discord", "plivo") and call.method.startswith(
        ("send", "create")
    ):
        return Outside(call.package)
    return None


_AWS: Final = {
    "sns": {"publish", "publish_batch"}, "sqs": {"send_message", "send_message_batch"},
    "ses": {"send_email", "send_raw_email", "send_templated_email"}, "sesv2": {"send_email"},
    "events": {"put_events"}, "kinesis": {"put_record", "put_records"}, "firehose": {"put_record", "put_record_batch"},
    "lambda": {"invoke"}, "stepfunctions": {"start_execution"}, "ec2": {"run_instances"},
    "pinpoint": {"send_messages"}, "ecs": {"run_task"}, "batch": {"submit_job"}, "pinpoint-sms-voice-v2": {"send_text_message"},
}  # fmt: skip
_TOKENS: Final = {"run_instances": "EC2", "run_task": "ECS"}


def _aws(call: CallInfo) -> Outside | None:
    service = call.owner_type.split(":", 1)[1].split(".")[0] if call.owner_type.startswith("boto3:") else ""
    if service:
        if call.method not in _AWS.get(service, ()):
            return None
    elif call.has_project_owner or not _looks_like_aws(call):
        return None
    if call.method == "start_execution" and call.keyword("name") is not None:
        return Outside("AWS", deduplicates=True)
    takes = _TOKENS.get(call.method, "")
    if call.method in ("send_message", "publish") and _is_fifo(call):
        takes = "FIFO queue"
    has_id = call.keyword("MessageDeduplicationId") is not None
    return Outside("AWS", takes, deduplicates=has_id)


def _looks_like_aws(call: CallInfo) -> bool:
    names = {one.arg for one in call.node.keywords}
    return (
        (
            call.method in ("send_message", "send_message_batch")
            and bool({"QueueUrl", "MessageBody"} & names)
        )
        or (call.method == "publish" and bool({"TopicArn", "TargetArn", "PhoneNumber"} & names))
        or (
            call.method in ("send_email", "send_raw_email")
            and bool({"Source", "Destination", "RawMessage"} & names)
        )
        or (call.method == "put_events" and "Entries" in names)
        or (call.method == "put_record" and "StreamName" in names)
        or (call.method == "invoke" and "FunctionName" in names)
        or (call.method == "start_execution" and "stateMachineArn" in names)
    )


def _is_fifo(call: CallInfo) -> bool:
    url = next((one.value for one in call.node.keywords if one.arg in ("QueueUrl", "TopicArn")), None)
    return call.keyword("MessageGroupId") is not None or (
        url is not None and text_of(url, call.scope).endswith(".fifo")
    )


_PRODUCER: Final = re.compile(r"(producer|publisher|exchange|jetstream|js|nc|nats|pubsub|broker|topic)$")
_PUBLISH: Final = frozenset(
    {"send", "produce", "send_and_wait", "publish", "basic_publish", "xadd", "publish_message"}
)


def _publish(call: CallInfo) -> Outside | None:
    if call.method == "basic_publish":
        return Outside("RabbitMQ")
    if call.method not in _PUBLISH or call.has_project_owner:
        return None
    full = call.full.lower()
    if call.method == "xadd":
        return Outside("Redis stream")
    if call.method == "produce" or "producer" in full or call.method == "send_and_wait":
        return Outside("Kafka")
    if call.package in ("aio_pika", "nats", "google", "faststream", "aiormq", "kombu", "paho", "aiomqtt"):
        is_act = call.method in ("publish", "send")
        return Outside(call.package) if is_act else None
    if call.method == "publish" and (
        call.package == "redis" or call.receiver_name in ("redis", "redis_client", "r")
    ):
        return Outside("Redis")
    if not call.package and _PRODUCER.search(call.receiver_name.replace("default_exchange", "exchange")):
        return Outside("publish") if call.method in ("publish", "send") else None
    return None


def _grpc(call: CallInfo) -> Outside | None:
    owner = call.owner_type.rsplit(".", 1)[-1]
    is_stub = owner.endswith("Stub") or call.receiver_name.endswith("stub")
    if is_stub and call.method[:1].isupper() and not _READ.match(call.method):
        return Outside("gRPC")
    return None


def _named(call: CallInfo) -> Outside | None:
    """A client from outside the project with a verb that can only act."""
    if call.has_project_owner or not call.receiver or call.receiver in ("self", "cls"):
        return None
    is_outside = bool(call.package) and call.package not in _OWN and not call.scope.index.has(call.package)
    if STRONG.match(call.method) and (
        is_outside or (not call.package and _CLIENT.search(call.receiver_name))
    ):
        return Outside(call.package or call.receiver_name, by_name=True)
    return None


_OWN: Final = frozenset(
    {"self", "oncegate", "sqlalchemy", "django", "asyncio", "typing", "builtins", "logging", "redis"}
)
