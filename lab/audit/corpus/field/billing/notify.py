from sendgrid import SendGridAPIClient
from sendgrid.helpers.mail import Mail


class Mailer:
    def __init__(self, key: str) -> None:
        self._client = SendGridAPIClient(key)

    def receipt(self, to: str, reference: str) -> None:
        self._client.send(Mail("billing@shop.test", to, "Receipt", reference))

    def receipt_direct(self, to: str, reference: str) -> None:
        self._client.send(Mail("billing@shop.test", to, "Receipt", reference))
