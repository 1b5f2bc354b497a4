<?php
// A bulletin board, as RUBBoS has it: stories of the day, a story with its comments, a search, a user's page, a new comment.
$db = new mysqli('p:localhost', 'root', '', 'board', 0, 'SOCKET');

function shown(string $text): string
{
    $text = htmlspecialchars($text);
    $text = preg_replace('/\*(\w+)\*/', '<b>$1</b>', $text);
    $text = preg_replace_callback('/\b(word\d+)\b/', fn ($m) => "<a href=\"?search=$m[1]\">" . ucfirst($m[1]) . '</a>', $text);
    return nl2br(wordwrap($text, 76, "\n", false));
}

function rows(mysqli $db, string $query): array
{
    return $db->query($query)->fetch_all(MYSQLI_ASSOC);
}

function stories(mysqli $db): array
{
    $from = random_int(0, 480);
    return rows($db, "SELECT s.title, s.body, u.name, (SELECT COUNT(*) FROM comments c WHERE c.story = s.id) AS answers " .
        "FROM stories s JOIN users u ON u.id = s.author WHERE s.id > $from ORDER BY s.id LIMIT 20");
}

function story(mysqli $db): array
{
    $id = random_int(1, 500);
    return array_merge(
        rows($db, "SELECT s.title, s.body, u.name, 0 AS answers FROM stories s JOIN users u ON u.id = s.author WHERE s.id = $id"),
        rows($db, "SELECT CONCAT('answer ', c.id) AS title, c.body, u.name, 0 AS answers FROM comments c " .
            "JOIN users u ON u.id = c.author WHERE c.story = $id ORDER BY c.id LIMIT 40")
    );
}

function search(mysqli $db): array
{
    $word = 'word' . random_int(0, 16);
    return rows($db, "SELECT s.title, s.body, u.name, 0 AS answers FROM stories s JOIN users u ON u.id = s.author " .
        "WHERE s.body LIKE '%$word of%' ORDER BY s.id DESC LIMIT 20");
}

function user(mysqli $db): array
{
    $id = random_int(1, 200);
    return rows($db, "SELECT s.title, s.body, u.name, 0 AS answers FROM stories s JOIN users u ON u.id = s.author WHERE u.id = $id " .
        "UNION ALL (SELECT CONCAT('answer ', c.id), c.body, u.name, 0 FROM comments c JOIN users u ON u.id = c.author WHERE u.id = $id LIMIT 20)");
}

function post(mysqli $db): array
{
    [$story, $author] = [random_int(1, 500), random_int(1, 200)];
    $db->query("INSERT INTO comments (story, author, body) VALUES ($story, $author, REPEAT('a *new* word3 of mine ', 8))");
    return rows($db, "SELECT CONCAT('answer ', id) AS title, body, 'me' AS name, 0 AS answers FROM comments WHERE id = LAST_INSERT_ID()");
}

$page = random_int(0, 99);
$found = match (true) {
    $page < 30 => stories($db),
    $page < 70 => story($db),
    $page < 80 => search($db),
    $page < 90 => user($db),
    default => post($db),
};
$out = "<html><body><ul>\n";
foreach ($found as $row) {
    $out .= sprintf("<li><h3>%s</h3> by %s (%d)<p>%s</p></li>\n", shown($row['title']), shown($row['name']), $row['answers'], shown($row['body']));
}
if ($found === []) {
    http_response_code(500);
}
echo $out, "</ul></body></html>\n";
