"""The shop's tables."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates them."""

    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [
        migrations.CreateModel(
            name="Booking",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("container", models.CharField(max_length=20)),
                ("slot", models.CharField(max_length=20)),
            ],
        ),
        migrations.CreateModel(
            name="Payment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("order", models.CharField(max_length=20)),
                ("cents", models.IntegerField()),
            ],
        ),
    ]
