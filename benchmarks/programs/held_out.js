// A little language, a priority queue, dates of a calendar and text; the same each time.
function tokens(text) {
	var found = [], pattern = /\s*(\d+|[a-z]+|[-+*\/()=])/g, match;
	while ((match = pattern.exec(text)) !== null)
		found.push(match[1]);
	return found;
}

function Parser(text) {
	this.tokens = tokens(text);
	this.at = 0;
}
Parser.prototype.next = function () { return this.tokens[this.at++]; };
Parser.prototype.peek = function () { return this.tokens[this.at]; };
Parser.prototype.primary = function () {
	var token = this.next();
	if (token === "(") {
		var inner = this.sum();
		this.next();
		return inner;
	}
	return isNaN(token) ? { name: token } : { value: Number(token) };
};
Parser.prototype.product = function () {
	var left = this.primary();
	while (this.peek() === "*" || this.peek() === "/")
		left = { operator: this.next(), left: left, right: this.primary() };
	return left;
};
Parser.prototype.sum = function () {
	var left = this.product();
	while (this.peek() === "+" || this.peek() === "-")
		left = { operator: this.next(), left: left, right: this.product() };
	return left;
};

function evaluate(node, names) {
	if ("value" in node)
		return node.value;
	if ("name" in node)
		return names[node.name];
	var left = evaluate(node.left, names), right = evaluate(node.right, names);
	switch (node.operator) {
	case "+": return left + right;
	case "-": return left - right;
	case "*": return left * right;
	default: return right === 0 ? 0 : left / right;
	}
}

function push(heap, item) {
	var at = heap.length;
	heap.push(item);
	while (at > 0) {
		var parent = (at - 1) >> 1;
		if (heap[parent].key <= item.key)
			break;
		heap[at] = heap[parent];
		at = parent;
	}
	heap[at] = item;
}

function pop(heap) {
	var first = heap[0], last = heap.pop(), at = 0;
	while (heap.length > 0 && 2 * at + 1 < heap.length) {
		var child = 2 * at + 1;
		if (child + 1 < heap.length && heap[child + 1].key < heap[child].key)
			++child;
		if (heap[child].key >= last.key)
			break;
		heap[at] = heap[child];
		at = child;
	}
	if (heap.length > 0)
		heap[at] = last;
	return first;
}

function weekday(year, month, day) {
	var shift = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
	if (month < 3)
		--year;
	return (year + (year >> 2) - Math.floor(year / 100) + Math.floor(year / 400) + shift[month - 1] + day) % 7;
}

for (var round = 0; round < 6; ++round) {
	var parsed = [], total = 0;
	for (var i = 0; i < 60; ++i)
		parsed.push(new Parser("(a + " + i + ") * b - c / (" + (i + 1) + " + a * a) + 3").sum());
	for (var i = 0; i < 4000; ++i)
		total += evaluate(parsed[i % parsed.length], { a: i, b: round + 1, c: i % 17 });

	var heap = [], order = 0;
	for (var i = 0; i < 6000; ++i)
		push(heap, { key: i * 7919 % 10007, name: "event" + i });
	for (var i = 0; i < 6000; ++i)
		order = (order * 31 + pop(heap).key) % 1000003;

	var fridays = 0;
	for (var year = 1900; year < 2100; ++year)
		for (var month = 1; month <= 12; ++month)
			fridays += weekday(year, month, 13) === 5 ? 1 : 0;

	var words = [];
	for (var i = 0; i < 1500; ++i)
		words.push(String.fromCharCode(97 + i * 11 % 26, 97 + i * 5 % 26, 97 + i % 26));
	var groups = {};
	words.forEach(function (word) {
		var key = word.split("").sort().join("");
		(groups[key] = groups[key] || []).push(word);
	});
	var largest = Object.keys(groups).map(function (key) { return groups[key].length; }).sort().pop();
	print(total.toFixed(4), order, fridays, Object.keys(groups).length, largest, words.join("").indexOf("zzz"));
}
