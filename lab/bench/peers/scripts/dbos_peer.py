# mypy: ignore-errors
"""DBOS as a subject: the workflow's id is the key, a step is the effect, a transaction has the row."""

from __future__ import annotations

import logging

import sqlalchemy as sa
import stand
from dbos import DBOS, SetWorkflowID, SQLAlchemyDatasource

BOOKING = sa.table("booking", sa.column("ref"), sa.column("equipment"), sa.column("slot"))


class Dbos(stand.Subject):
    """Default settings, so that a process that starts recovers what its predecessor left."""

    def open(self):
        """Launches DBOS on its own schema, with the business table as a datasource."""
        settings = self.settings
        if settings.store == "postgres":
            address = business = settings.url.replace("postgresql://", "postgresql+psycopg://")
        else:
            address, business = f"sqlite:///{settings.url}", f"sqlite:///{settings.folder}/bookings.db"
        DBOS(config={"name": "bench", "system_database_url": address, "log_level": "ERROR"})
        logging.disable(logging.WARNING)
        self.business = SQLAlchemyDatasource.create(business)
        with self.business.engine.begin() as connection:
            connection.execute(sa.text(stand.CREATE_BOOKING))
        self.workflow = self._workflow()
        DBOS.launch()
        return {}

    def _workflow(self):
        @DBOS.step()
        def claim_slot(key):
            return self.downstream.call(key, approached=True)

        @self.business.transaction()
        def add_row(row):
            self.business.sql_session().execute(BOOKING.insert().values(row))

        @DBOS.workflow()
        def book(event):
            self.downstream.approach()
            slot = claim_slot(stand.key_of(event))
            add_row({"ref": stand.key_of(event), "equipment": event["equipment_number"], "slot": slot})
            return slot

        return book

    def work(self, event):
        """Runs the workflow under the key; a known id gives the first result."""
        with SetWorkflowID(stand.key_of(event)):
            return {"slot": self.workflow(event)}

    def rows(self, key):
        """Counts business rows."""
        with self.business.engine.begin() as connection:
            found = connection.execute(
                sa.text("SELECT count(*) FROM booking WHERE ref = :ref"), {"ref": key}
            )
            return found.scalar_one()


if __name__ == "__main__":
    stand.serve(Dbos)
