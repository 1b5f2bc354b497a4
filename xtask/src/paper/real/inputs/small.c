#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node { struct node *left, *right; int key; char name[24]; };

static struct node *insert(struct node *n, int key)
{
	if (!n) {
		n = calloc(1, sizeof *n);
		n->key = key;
		snprintf(n->name, sizeof n->name, "node %d", key);
	} else if (key < n->key) {
		n->left = insert(n->left, key);
	} else if (key > n->key) {
		n->right = insert(n->right, key);
	}
	return n;
}

static int depth(const struct node *n)
{
	int l = n ? depth(n->left) : 0, r = n ? depth(n->right) : 0;
	return n ? 1 + (l > r ? l : r) : 0;
}

static unsigned hash(const char *s)
{
	unsigned h = 2166136261u;
	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	return h;
}

int work(int argc, char **argv)
{
	struct node *root = NULL;
	unsigned x = 1, sum = 0;
	for (int i = 0; i < 1000 * argc; i++) {
		x = x * 1103515245u + 12345u;
		root = insert(root, (int)(x >> 8));
	}
	for (int i = 0; i < argc; i++)
		sum ^= hash(argv[i]) + (unsigned)strlen(argv[i]);
	switch (sum % 7) {
	case 0: puts("zero"); break;
	case 1: puts("one"); break;
	case 2: puts("two"); break;
	default: printf("%u\n", sum);
	}
	return depth(root);
}
