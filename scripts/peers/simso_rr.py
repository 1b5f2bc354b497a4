"""Round robin for SimSo: ready jobs take turns of `quantum` ms on one processor."""

from simso.core import Scheduler, Timer

QUANTUM_MS = 4


class simso_rr(Scheduler):  # SimSo wants the class to be called as its file is.
    """One queue; its head runs; a timer sends the head to the back."""

    def init(self):
        self.queue = []
        self.timer = Timer(
            self.sim, simso_rr.turn, (self, self.processors[0]), QUANTUM_MS, cpu=self.processors[0], in_ms=True, one_shot=False
        )
        self.timer.start()

    def turn(self, cpu):
        if len(self.queue) > 1:
            self.queue.append(self.queue.pop(0))
            cpu.resched()

    def on_activate(self, job):
        self.queue.append(job)
        job.cpu.resched()

    def on_terminated(self, job):
        self.queue.remove(job)
        job.cpu.resched()

    def schedule(self, cpu):
        return (self.queue[0] if self.queue else None, cpu)
