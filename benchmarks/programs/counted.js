// Trees, sorting, strings and closures; the same each time.
function tree(depth) {
	return depth === 0 ? null : { left: tree(depth - 1), right: tree(depth - 1), value: depth };
}

function sum(node) {
	return node === null ? 0 : sum(node.left) + node.value + sum(node.right);
}

var seed = 1;
function random() {
	seed = (seed * 16807) % 2147483647;
	return seed;
}

var total = 0;
for (var round = 0; round < 4; ++round)
	total += sum(tree(11));

var numbers = [];
for (var i = 0; i < 6000; ++i)
	numbers.push(random() % 100000);
numbers.sort(function (a, b) { return a - b; });

var words = {}, text = [];
for (var i = 0; i < 8000; ++i) {
	var word = "w" + (random() % 500).toString(36);
	words[word] = (words[word] || 0) + 1;
	text.push(word.toUpperCase().charAt(1) + word.substring(1));
}
var joined = text.join(" ");
var matches = joined.match(/[A-F][0-9a-f]+/g).length;
var replaced = joined.replace(/([a-z])([0-9])/g, "$2$1").split(" ").length;

var sieve = [], primes = 0;
for (var i = 2; i < 20000; ++i) {
	if (sieve[i]) continue;
	++primes;
	for (var j = i * 2; j < 20000; j += i) sieve[j] = true;
}
print(total, numbers[3000], Object.keys(words).length, matches, replaced, primes);
print(JSON.stringify(JSON.parse(JSON.stringify({ words: words, numbers: numbers }))).length);
