// Objects with methods, exceptions, numbers and text; the same each time.
function Account(owner, balance) {
	this.owner = owner;
	this.balance = balance;
}
Account.prototype.withdraw = function (amount) {
	if (amount > this.balance)
		throw new Error("overdrawn: " + this.owner);
	this.balance -= amount;
	return this;
};

var refused = 0, accounts = [];
for (var i = 0; i < 300; ++i)
	accounts.push(new Account("owner" + i, 100 + i * 7 % 400));
for (var i = 0; i < 30000; ++i) {
	try {
		accounts[i * 31 % accounts.length].withdraw(1 + i % 13);
	} catch (error) {
		refused += error.message.indexOf("owner") > 0 ? 1 : 0;
	}
}

var width = 60, depth = 40, escaped = 0;
for (var y = 0; y < width; ++y) {
	for (var x = 0; x < width; ++x) {
		var a = 0, b = 0, n = 0;
		while (a * a + b * b < 4 && n < depth) {
			var next = a * a - b * b + 3 * x / width - 2;
			b = 2 * a * b + 3 * y / width - 1.5;
			a = next;
			++n;
		}
		escaped += n < depth ? 1 : 0;
	}
}

var lines = [];
for (var i = 0; i < 2000; ++i)
	lines.push([i, (i * 0.37).toFixed(3), Math.sqrt(i).toString().slice(0, 6)].join(","));
var columns = lines.map(function (line) { return line.split(",").map(parseFloat); });
var total = columns.reduce(function (sum, row) { return sum + row[1] * row[2]; }, 0);

function moves(disks, from, to, over) {
	return disks === 0 ? 0 : moves(disks - 1, from, over, to) + 1 + moves(disks - 1, over, to, from);
}
print(refused, escaped, total.toFixed(2), moves(14, "a", "b", "c"));
print(encodeURIComponent(lines.slice(0, 300).join(";")).length, lines.reverse().join("").replace(/\./g, "").length);
