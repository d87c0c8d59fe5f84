"""Write the tables a company would have, with rare fraud: accounts.parquet, transactions.csv and fraud.toml.

python examples/company_accounts.py --out company      # then go on as docs/company.md says

The story, which was written before any model was trained:

- 10,000 accounts. Customers live in circles of about 20 people. They pay somebody of their circle, a shop, or anybody.
- 2.5 % are fraud. Most fraudsters work in rings of 3 to 12. They pass money to each other and out through two or three
  mules: customers who lend their account and are not fraud themselves. One fraudster in eight works alone.
- Every fraudster also pays shops and others as customers do, to look like one.
- An account tells little by itself. Fraud is somewhat more often new, free of charge, without a verified phone, and
  from two of ten countries; none of it is rare among honest customers.
- Data is as it is found: text ids, gaps, dates, an e-mail address that says nothing, accounts that nobody has reviewed
  (status is empty), and transfers to accounts of other banks, which are not in the table.
"""

from __future__ import annotations

import argparse
import csv
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COUNTRIES = ("DE", "FR", "IT", "ES", "PL", "NL", "AT", "PT", "CY", "MT")
PLANS = ("free", "plus", "business")
START = datetime(2022, 1, 1)  # the first day of accounts; transactions are from the 90 days after the last one
DAYS = 1000
FRAUD, ALONE, SHOPS = 0.025, 0.125, 0.02  # fractions: of accounts, of fraudsters, of accounts
MAPPING = """\
# Train with: vcr-graphormer train --config fraud.toml --out runs/fraud
[data]
stratified = true                 # the same fraction of fraud in training, validation and test accounts

[data.nodes]
file = "accounts.parquet"
id = "account_id"
label = "status"                  # ok, fraud, or empty where nobody knows
categories = ["country", "plan"]
drop = ["email"]

[data.edges]
file = "transactions.csv"
source = "from_account"
target = "to_account"
weight = "amount"                 # transfers between the same two accounts add up

[training]
class_weights = "balanced"
metric = "average_precision"
threshold = "recall=0.7"          # say fraud so often that 70 % of it is found; "f1" balances recall and precision
epochs = 20                       # short, for a quick example; leave it out for your own
"""

Rng = np.random.Generator


def make_rings(rng: Rng, fraudsters: np.ndarray) -> list[np.ndarray]:
    """Divide the fraudsters who do not work alone into rings of 3 to 12."""
    members = fraudsters[int(ALONE * len(fraudsters)) :]
    rings = []
    while len(members) >= 3:
        size = int(rng.integers(3, 13))
        rings.append(members[:size])
        members = members[size:]
    return rings


def ordinary_payments(rng: Rng, count: int, shops: np.ndarray) -> list[tuple[int, int, float]]:
    """Return payments that everybody makes: 60 % to the own circle, 30 % to shops, 10 % to anybody."""
    circle = rng.integers(max(1, count // 20), size=count)
    by_circle = [np.flatnonzero(circle == number) for number in range(circle.max() + 1)]
    popular = rng.zipf(1.8, size=len(shops)).astype(float)
    payments = []
    for payer, times in enumerate(rng.poisson(5, size=count)):
        for where in rng.random(times):
            if where < 0.6:
                payee = rng.choice(by_circle[circle[payer]])
            else:
                payee = rng.choice(shops, p=popular / popular.sum()) if where < 0.9 else rng.integers(count)
            payments.append((payer, int(payee), float(rng.lognormal(3.5, 1.0))))
    return payments


def ring_payments(rng: Rng, rings: list[np.ndarray], customers: np.ndarray) -> list[tuple[int, int, float]]:
    """Return what fraudsters pass on: one to four times to others of the ring, once or twice to a mule of it."""
    payments = []
    for ring in rings:
        mules = rng.choice(customers, size=int(rng.integers(2, 4)), replace=False)
        for payer in ring:
            others = ring[ring != payer]
            payees = [*rng.choice(others, size=rng.integers(1, 5)), *rng.choice(mules, size=rng.integers(1, 3))]
            payments += [(int(payer), int(payee), float(rng.lognormal(4.0, 1.0))) for payee in payees]
    return payments


def account_table(rng: Rng, fraud: np.ndarray, shops: np.ndarray) -> pa.Table:
    """Return one row per account. Each column tells a little about fraud, or nothing."""
    count = len(fraud)
    names = [f"AC-{number:06d}" for number in range(count)]
    often, seldom = np.array([2.0] * 8 + [1.0] * 2), np.array([2.0] * 8 + [3.0] * 2)
    country = np.where(
        fraud, rng.choice(10, count, p=seldom / seldom.sum()), rng.choice(10, count, p=often / often.sum())
    )
    plan = np.where(rng.random(count) < np.where(fraud, 0.75, 0.6), 0, 1)
    plan[shops] = 2
    days = (DAYS * np.where(fraud, rng.beta(1.5, 1.0, count), rng.random(count))).astype(int)
    age = np.clip(rng.normal(42, 14, count), 18, 90).round()
    logins = rng.gamma(2.0, np.where(fraud, 2.5, 2.0))
    verified = rng.random(count) < np.where(fraud, 0.75, 0.88)
    no_age = rng.random(count) < np.where(fraud, 0.2, 0.1)
    no_country = rng.random(count) < 0.03
    reviewed = rng.random(count) < 0.9
    status = np.where(fraud, "fraud", "ok")
    return pa.table(
        {
            "account_id": names,
            "email": [f"user{number}@example.com" for number in rng.permutation(count)],
            "country": [None if gap else COUNTRIES[code] for code, gap in zip(country, no_country, strict=True)],
            "plan": [PLANS[code] for code in plan],
            "created": pa.array([(START + timedelta(days=int(day))).date() for day in days]),
            "holder_age": pa.array(age, mask=no_age),
            "logins_per_week": logins.round(2),
            "phone_verified": verified,
            "status": [text if known else None for text, known in zip(status, reviewed, strict=True)],
        }
    )


def write_transactions(rng: Rng, file: Path, payments: list[tuple[int, int, float]]) -> None:
    """Write the payments in order of time. One in fifty goes to an account of another bank."""
    foreign = rng.random(len(payments)) < 0.02
    seconds = np.sort(rng.integers(90 * 86_400, size=len(payments)))
    with file.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(("transaction", "booked_at", "from_account", "to_account", "amount"))
        for number, position in enumerate(rng.permutation(len(payments))):
            payer, payee, amount = payments[position]
            moment = START + timedelta(days=DAYS, seconds=int(seconds[number]))
            target = f"EXT-{payee:06d}" if foreign[number] else f"AC-{payee:06d}"
            writer.writerow((f"T{number:07d}", moment.isoformat(), f"AC-{payer:06d}", target, f"{amount + 0.01:.2f}"))


def main() -> None:
    """Generate accounts and payments, and write them."""
    parser = argparse.ArgumentParser(description="Write generated tables of a company: accounts and transactions")
    parser.add_argument("--out", type=Path, default=Path("company"), help="folder to write (default: company)")
    parser.add_argument("--accounts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    count = arguments.accounts
    rng = np.random.default_rng(arguments.seed)
    order = rng.permutation(count)
    fraudsters, shops, customers = np.split(order, [round(FRAUD * count), round((FRAUD + SHOPS) * count)])
    fraud = np.isin(np.arange(count), fraudsters)
    rings = make_rings(rng, fraudsters)
    payments = ordinary_payments(rng, count, shops) + ring_payments(rng, rings, customers)

    arguments.out.mkdir(parents=True, exist_ok=True)
    pq.write_table(account_table(rng, fraud, shops), arguments.out / "accounts.parquet")
    write_transactions(rng, arguments.out / "transactions.csv", payments)
    (arguments.out / "fraud.toml").write_text(MAPPING, encoding="utf-8")
    print(f"{arguments.out}: {count:,} accounts, {fraud.sum():,} of them fraud in {len(rings)} rings and alone,")
    print(f"{len(payments):,} transactions, and fraud.toml, which says what the columns are.")


if __name__ == "__main__":
    main()
