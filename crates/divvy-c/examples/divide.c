/* Divides one's own two processes 3:1, gives the second one as much after a while, and says what each got.
 *
 *     cc -o divide divide.c -ldivvy && ./divide
 */
#define _POSIX_C_SOURCE 200809L
#include <divvy.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that computes, in a session of its own: nobody's terminal takes it for stopped by Ctrl-Z. */
static pid_t compute(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		volatile unsigned long n = 0;
		setsid();
		for (;;)
			n++;
	}
	return pid;
}

static int check(int failed, const char *what)
{
	if (failed)
		fprintf(stderr, "%s: %s\n", what, divvy_message());
	return failed;
}

static int report(divvy *d)
{
	struct divvy_row rows[2];
	size_t count = 0;
	if (check(divvy_report(d, rows, 2, &count), "report"))
		return 1;
	for (size_t i = 0; i < count && i < 2; i++)
		printf("%s: share %lu, %.1f %% of %.1f %%, %.2f s, %s\n", rows[i].name, (unsigned long)rows[i].share,
		       100 * rows[i].achieved, 100 * rows[i].target, (double)rows[i].cpu_ns / 1e9,
		       divvy_state_name(rows[i].state));
	return 0;
}

int main(void)
{
	divvy *d = divvy_open(0);
	if (check(d == NULL, "open"))
		return 1;
	pid_t render = compute(), indexer = compute();
	int failed = check(divvy_add_pid(d, "render", render, 3), "render") ||
		     check(divvy_add_pid(d, "index", indexer, 1), "index");
	if (!failed) {
		sleep(4);
		failed = report(d) || check(divvy_set_share(d, "index", 3), "index");
	}
	divvy_close(d); /* They run on, undivided. */
	kill(render, SIGKILL);
	kill(indexer, SIGKILL);
	while (wait(NULL) > 0)
		;
	return failed;
}
