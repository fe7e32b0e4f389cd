// Trees, sorting, strings and closures; the same each time.
function tree(depth) {
	return depth === 0 ? null : { left: tree(depth - 1), right: tree(depth - 1), value: depth };
}

function sum(node) {
	return node === null ? 0 : sum(node.left) + node.value + sum(node.right);
}

var seed = 2;
function random() {
	seed = (seed * 16807) % 2147483647;
	return seed;
}

function counter() {
	var count = 0;
	return function (step) { count += step; return count; };
}

function work() {
	var total = sum(tree(9)), numbers = [], text = [], count = counter();
	for (var i = 0; i < 800; ++i)
		numbers.push(random() % 100000);
	numbers.sort(function (a, b) { return a - b; });
	for (var i = 0; i < 1000; ++i) {
		text.push("w" + (random() % 500).toString(36));
		count(text[i].length);
	}
	var replaced = text.join(" ").replace(/([a-z])([0-9])/g, "$2$1");
	var sieve = [], primes = 0;
	for (var i = 2; i < 2000; ++i) {
		if (sieve[i]) continue;
		++primes;
		for (var j = i * 2; j < 2000; j += i) sieve[j] = true;
	}
	return [total, numbers[400], count(0), replaced.length, primes];
}
for (var round = 0; round < Number(scriptArgs[0]); ++round)
	print(work());
