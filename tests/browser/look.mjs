// Looks at pages in Chromium, for tests/browser/pages_test.py.
//
//   node look.mjs PACKAGES CHROMIUM PAGE.html ...
//
// PACKAGES is a folder with node_modules, where playwright-core and axe-core are. Prints one JSON object:
// for each page the rules of axe-core that it breaks, light and dark, wide and narrow; how far it is wider
// than a phone; and how many sheets of A4 the part for whoever signs takes when it is printed (null without one).
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [packages, executablePath, ...pages] = process.argv.slice(2);
const load = createRequire(`${packages}/`);
const { chromium } = load('playwright-core');
const axe = readFileSync(load.resolve('axe-core/axe.min.js'), 'utf8');

const PHONE = { width: 400, height: 800 };
const VIEWS = [
  { colorScheme: 'light', viewport: { width: 1200, height: 900 } },
  { colorScheme: 'dark', viewport: { width: 1200, height: 900 } },
  { colorScheme: 'light', viewport: PHONE },
];

async function broken(page) {
  // Folded parts are pages too.
  await page.evaluate(() => document.querySelectorAll('details').forEach((each) => { each.open = true; }));
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
  }));
  return violations.map(({ id, help, nodes }) => ({
    rule: id, help, where: nodes.map(({ html, failureSummary }) => `${html.slice(0, 200)} ${failureSummary}`),
  }));
}

async function sheets(page) {
  if (!(await page.locator('.signer').count())) return null;
  await page.addStyleTag({ content: 'main > :not(.signer) { display: none; }' });
  const pdf = await page.pdf({ preferCSSPageSize: true, printBackground: true });
  return (pdf.toString('latin1').match(/\/Type\s*\/Page\b/g) ?? []).length;
}

const browser = await chromium.launch({
  executablePath,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
try {
  const found = {};
  for (const name of pages) {
    const result = { broken: {}, wider: 0, sheets: null };
    for (const view of VIEWS) {
      const context = await browser.newContext({ ...view, offline: true });
      const page = await context.newPage();
      await page.goto(pathToFileURL(name).href);
      result.broken[`${view.colorScheme} ${view.viewport.width}`] = await broken(page);
      if (view.viewport === PHONE) {
        result.wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      } else if (view.colorScheme === 'light') {
        result.sheets = await sheets(page);
      }
      await context.close();
    }
    found[name] = result;
  }
  console.log(JSON.stringify(found));
} finally {
  await browser.close();
}
