//! How each command ends, as the help of each says: the numbers of [`Code`](crate::Code).

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    it ended as asked: the time was up, or every command exited with 0
  1    a command failed (rescue, replay: something is left to be repaired, or differs; sim, compare: a run could
       not end and was cut off at its limit)
  2    the arguments cannot be used
  3    a command cannot be started, or a process not attached; nothing is left running
  4    a file cannot be read or written
  5    the system refused: a permission, a limit, a failed call
  6    there is no such client, process, currency, ticket, exchange, offer, user or group
  7    the scheduler (divvyd) cannot be started or reached; share: its scheduler was killed
  8    the market does not permit you that, or the client is not yours: its owner, or a superuser, can
  9    the market cannot do that: a cycle, more than there is, above a bound or a limit
  128+N  signal N asked for the end (130: Ctrl-C)";
