"""The catalog: all stores of a company, and one request over many of them.

    catalog  --- knows --->  bank.forest    ledger 1 .. 17
             --- knows --->  fraud.forest   ledger 1 .. 203
             --- knows --->  churn.forest   ledger 1 .. 5

The stores are the truth. What the catalog says of them is a copy for people and queries, made from their ledgers by
whoever comes by, and can be dropped and made again. It knows by itself only where stores are and who is to be
forgotten. No store needs it: one that is changed while the catalog is down is read at the next contact.

    place         where the catalog is
    tables        its tables
    schema        its revisions
    handle        the open catalog
    contact       a registered store: is it there, is it the one?
    projection    one store -> rows
    registry      which stores there are
    requests      forget somebody in all of them
    report        what the catalog says
    following     a change that was just made to a store, brought in

Imports SQLAlchemy, so it is imported by those who use it only."""
