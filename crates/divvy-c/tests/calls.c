/* What each call comes to, as lines that tests/c_program.rs reads. Its argument is a process to divide. */
#define _POSIX_C_SOURCE 200809L
#include <divvy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void tell(const char *what, int code)
{
	printf("%s|%d|%d|%s\n", what, code, code ? divvy_error() : 0, code ? divvy_message() : "");
}

static void row(divvy *d, const char *what)
{
	struct divvy_row one;
	size_t count = 0;
	int code = 0;
	/* None of these computes: whoever is said to has not been looked at yet. */
	for (int looks = 0; looks < 1000; looks++) {
		struct timespec rest = {0, 10000000};
		memset(&one, 0xff, sizeof one);
		code = divvy_report(d, &one, 1, &count);
		if (code || count == 0 || one.state != DIVVY_RUNNING)
			break;
		nanosleep(&rest, NULL);
	}
	printf("%s|%d|%zu|%s share %lu limit %lu state %s processes %u\n", what, code, count, one.name,
	       (unsigned long)one.share, (unsigned long)one.limit_ppm, divvy_state_name(one.state), one.processes);
}

int main(int argc, char **argv)
{
	pid_t pid = argc > 1 ? atoi(argv[1]) : 0;
	char longest[DIVVY_NAME_SIZE], too_long[DIVVY_NAME_SIZE + 1];
	memset(longest, 'n', sizeof longest - 1);
	longest[sizeof longest - 1] = 0;
	memset(too_long, 'n', sizeof too_long - 1);
	too_long[sizeof too_long - 1] = 0;

	tell("no scheduler", divvy_open(DIVVY_OWN | DIVVY_NO_START) == NULL);
	tell("both", divvy_open(DIVVY_OWN | DIVVY_SYSTEM_ONLY) == NULL);
	tell("no flag", divvy_open(64) == NULL);
	divvy *d = divvy_open(DIVVY_OWN);
	tell("open", d == NULL);
	tell("null", divvy_set_share(NULL, "a", 1));
	tell("no name", divvy_add_pid(d, NULL, pid, 1));
	tell("no utf-8", divvy_add_pid(d, "\xff", pid, 1));
	tell("long", divvy_add_pid(d, too_long, pid, 1));
	tell("no pid", divvy_add_pid(d, "a", 0, 1));
	tell("no process", divvy_add_pid(d, "a", 4194304, 1));
	tell("no share", divvy_add_pid(d, "a", pid, 0));
	tell("selector", divvy_add(d, "a", "tribe:1", 1));
	tell("unknown", divvy_set_share(d, "a", 1));
	tell("empty", divvy_report(d, NULL, 0, NULL));
	tell("add", divvy_add_pid(d, longest, pid, 2));
	tell("twice", divvy_add_pid(d, longest, pid, 2));
	row(d, "row");
	tell("share", divvy_set_share(d, longest, 5));
	tell("limit", divvy_set_limit(d, longest, 0.5));
	tell("no limit", divvy_set_limit(d, longest, -1));
	tell("pause", divvy_pause(d, longest));
	row(d, "paused");
	tell("resume", divvy_resume(d, longest));
	tell("unlimited", divvy_set_limit(d, longest, 0));
	tell("remove", divvy_remove(d, longest));
	tell("gone", divvy_remove(d, longest));
	tell("group", divvy_add(d, "again", "name:no-such-program", 1));
	row(d, "again");
	divvy_close(d);
	divvy_close(NULL);
	printf("version|0|0|%s\n", divvy_version());
	return 0;
}
